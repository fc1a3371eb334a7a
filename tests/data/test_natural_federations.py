"""Federations whose clients are real owners: their counts, their columns, and the parts of an owner's graph."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from fgl_bench.data.datasets.facebook100 import FILES, SCHOOLS, classes, one_hot
from fgl_bench.data.graph import Graph
from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import derive_seed
from tests.data.graphs import configured, make_graph, need

# People and friendships of every school, as in Traud et al.
FACEBOOK = {
    "american75": (6386, 217662), "amherst41": (2235, 90954), "brandeis99": (3898, 137567), "caltech36": (769, 16656),
    "colgate88": (3482, 155043), "cornell5": (18660, 790777), "haverford76": (1446, 59589), "johnshopkins55": (5180, 186586),
    "middlebury45": (3075, 124610), "mit8": (6440, 251252), "oberlin44": (2920, 89912), "oklahoma97": (17425, 892528),
    "pepperdine86": (3445, 152007), "reed98": (962, 18812), "santa74": (3578, 151747), "trinity100": (2613, 111996),
    "unc28": (18163, 766800), "wesleyan43": (3593, 138035),
}  # fmt: skip
YEARS = [5668, 13387, 16114, 17085, 18713, 16494]


def of_owners(graph: Graph) -> list[tuple[int, int]]:
    """Nodes and undirected edges of every owner; no edge joins two."""
    row, col = graph.owner[graph.edges]
    assert np.array_equal(row, col)
    return list(zip(np.bincount(graph.owner).tolist(), (np.bincount(row) // 2).tolist(), strict=True))


@pytest.mark.audit
@pytest.mark.parametrize(
    ("name", "file", "owners", "features", "labels"),
    [
        (
            "citation_domains", "citation_domains/dblpv7/raw/dblpv7.npz", [(9360, 15556), (8935, 15098), (5484, 8117)], 6775,
            [5366, 6898, 5421, 1825, 4269],
        ),
        ("webkb", "webkb_fixed/texas/raw/texas.npz", [(183, 277), (183, 279), (251, 450)], 1703, [81, 87, 166, 215, 68]),
    ],
)  # fmt: skip
def test_counts_are_the_published_ones(name, file, owners, features, labels):
    graph = configured("dataset", name).load(need(file))
    assert of_owners(graph) == owners and graph.num_features == features
    assert np.bincount(graph.labels).tolist() == labels and graph.num_classes == 5
    nodes = configured("split", "natural").assign(graph, None, 0)
    assert [ids.size for ids in nodes] == [size for size, _ in owners]


@pytest.mark.audit
def test_facebook_is_a_federation_of_eighteen_schools():
    assert SCHOOLS == tuple(configured("dataset", "facebook100").schools) == tuple(FACEBOOK)
    graph = configured("dataset", "facebook100").load(need(*FILES.values()))
    assert of_owners(graph) == list(FACEBOOK.values())
    assert np.bincount(graph.labels[graph.labels >= 0]).tolist() == YEARS and graph.num_classes == 6
    assert graph.features.sum(1).max() <= 3 and set(graph.features.data) == {1.0} and graph.num_features == 6 + 2 + 1025 + 1


@pytest.mark.parametrize(("label", "counts"), [("gender", [228, 475]), ("status", [553, 159, 0, 0, 55, 2])])
def test_other_labels(label, counts):
    graph = configured("dataset", "facebook100", schools=["caltech36"], label=label).load(need(FILES["caltech36"]))
    assert np.bincount(graph.labels[graph.labels >= 0], minlength=len(counts)).tolist() == counts and graph.num_classes == len(counts)


def test_school_features_are_columns_of_one_school_each(tmp_path):
    write_school(tmp_path, "caltech36", [[1, 1, 3, 0, 2, 2005, 9], [1, 2, 4, 3, 2, 2005, 9]])
    write_school(tmp_path, "mit8", [[1, 1, 3, 0, 5, 2005, 9], [1, 2, 3, 0, 2, 2006, 9]])
    keys = {"schools": ["caltech36", "mit8"], "min_frequency": 1}
    plain, own = (configured("dataset", "facebook100", school_features=given, **keys).load(str(tmp_path)) for given in (False, True))
    dense = sp.csr_matrix(own.features).toarray()
    assert plain.num_features == 1 + 2 + 1 and np.array_equal(dense[:, :4], sp.csr_matrix(plain.features).toarray())
    majors, minors, dorms = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], [[0], [1], [0], [0]], [[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert dense[:, 4:].tolist() == [[*a, *b, *c] for a, b, c in zip(majors, minors, dorms, strict=True)]


def test_the_label_is_no_feature(tmp_path):
    write_school(tmp_path, "caltech36", [[1, 1, 3, 0, 2, 2005, 9], [2, 2, 4, 0, 2, 2010, 9], [1, 0, 4, 0, 1, 2009, 0]])
    keys = {"schools": ["caltech36"], "min_frequency": 1}
    by_year = configured("dataset", "facebook100", **keys).load(str(tmp_path))
    assert by_year.labels.tolist() == [1, -1, 5]  # 2010 is no class
    assert by_year.features.toarray().tolist() == [[1, 0, 1, 0, 1], [0, 1, 0, 1, 1], [1, 0, 0, 0, 0]]  # status, gender, high school
    by_gender = configured("dataset", "facebook100", label="gender", **keys).load(str(tmp_path))
    assert by_gender.labels.tolist() == [0, 1, -1]  # not stated
    assert by_gender.features.toarray().tolist() == [[1, 0, 1, 0, 0, 1], [0, 1, 0, 0, 1, 1], [1, 0, 0, 1, 0, 0]]


def test_rare_codes_share_a_column_and_missing_ones_have_none():
    codes = np.array([7, 0, 5, 7, 9, 0, 8])
    assert one_hot(codes, 2).toarray().tolist() == [[1, 0], [0, 0], [0, 1], [1, 0], [0, 1], [0, 0], [0, 1]]
    assert one_hot(codes).toarray().argmax(1)[[0, 2, 3, 4, 6]].tolist() == [1, 0, 1, 3, 2]
    assert one_hot(np.zeros(3, dtype=int)).shape == (3, 0)
    assert classes(np.array([0, 2004, 2009, 2010, 2003]), range(2004, 2010)).tolist() == [-1, 0, 5, -1, -1]


def write_school(root, name, table, links=None):
    path = root / FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    people = len(table)
    scipy.io.savemat(path, {"A": links if links is not None else sp.csc_matrix(np.eye(people, k=1)), "local_info": np.array(table)})
    return path


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("facebook100", "schools", ["mit8", "mit8"]), ("citation_domains", "databases", ["dblp"]), ("webkb", "universities", [])],
)
def test_owners_are_chosen_by_name(name, key, value, tmp_path):
    with pytest.raises(UserError, match=f"dataset.{key}=.*must be different ones of "):
        configured("dataset", name, **{key: value}).load(str(tmp_path))


def owned(owner: np.ndarray) -> Graph:
    graph = make_graph(owner.size, 6 * owner.size)
    return Graph(graph.name, graph.features, graph.edges, graph.labels, graph.num_classes, owner=owner)


def test_an_owner_is_cut_into_parts_of_its_own_graph():
    graph = owned(np.random.default_rng(0).integers(3, size=300))
    split = configured("split", "natural", parts_per_owner=4)
    clients = split.assign(graph, None, 0)
    assert len(clients) == split.clients(graph) == 12 and sorted(np.concatenate(clients).tolist()) == list(range(300))
    assert [set(graph.owner[nodes].tolist()) for nodes in clients] == [{number // 4} for number in range(12)]
    assert max(nodes.size for nodes in clients) < 2 * min(nodes.size for nodes in clients)
    assert all(np.array_equal(one, other) for one, other in zip(clients, split.assign(graph, 12, 0), strict=True))
    assert any(not np.array_equal(one, other) for one, other in zip(clients, split.assign(graph, 12, 1), strict=True))
    # The second owner's parts are METIS parts of what it alone holds.
    nodes = np.flatnonzero(graph.owner == 1)
    inside = np.isin(graph.edges, nodes).all(0)
    alone = Graph("alone", graph.features[nodes], np.searchsorted(nodes, graph.edges[:, inside]), graph.labels[nodes], 3)
    parts = configured("split", "metis").assign(alone, 4, derive_seed(0, "owner", 1))
    assert all(np.array_equal(nodes[part], client) for part, client in zip(parts, clients[4:8], strict=True))


def test_numbers_that_do_not_fit_the_owners_are_refused():
    split = configured("split", "natural", parts_per_owner=2)
    with pytest.raises(UserError, match="num_clients=2: split=natural .* needs num_clients=4"):
        split.assign(owned(np.array([0, 0, 1, 1])), 2, 0)
    with pytest.raises(UserError, match=r"split.parts_per_owner=2: an owner of dataset=toy has only 1 node\(s\)"):
        split.assign(owned(np.array([0, 0, 1])), None, 0)


def test_one_part_is_the_whole_owner():
    graph = owned(np.arange(90) % 3)
    assert [nodes.tolist() for nodes in configured("split", "natural").assign(graph, None, 0)] == [list(range(k, 90, 3)) for k in range(3)]
