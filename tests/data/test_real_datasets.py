"""Published counts, and equality with PyG's own loaders, where the raw files are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.data.graphs import DATA, configured, need

# name: a raw file, nodes, undirected edges, features, nodes of each class
PUBLISHED = {
    "cora": ("Cora/raw/ind.cora.allx", 2708, 5278, 1433, [351, 217, 418, 818, 426, 298, 180]),
    "citeseer": ("CiteSeer/raw/ind.citeseer.allx", 3327, 4552, 3703, [264, 590, 668, 701, 596, 508]),
    "pubmed": ("PubMed/raw/ind.pubmed.allx", 19717, 44324, 500, [4103, 7739, 7875]),
    "photo": ("Photo/raw/amazon_electronics_photo.npz", 7650, 119081, 745, [369, 1686, 703, 915, 882, 823, 1941, 331]),
    "computers": (
        "Computers/raw/amazon_electronics_computers.npz",
        13752,
        245861,
        767,
        [436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291],
    ),
    "cs": (
        "CS/raw/ms_academic_cs.npz",
        18333,
        81894,
        6805,
        [708, 462, 2050, 429, 1394, 2193, 371, 924, 775, 118, 1444, 2033, 420, 4136, 876],
    ),
    "physics": ("Physics/raw/ms_academic_phy.npz", 34493, 247962, 8415, [5750, 5045, 17426, 2753, 3519]),
    "tolokers": ("tolokers/raw/tolokers.npz", 11758, 519000, 10, [9192, 2566]),
    "minesweeper": ("minesweeper/raw/minesweeper.npz", 10000, 39402, 7, [8000, 2000]),
    "dblp": ("dblp/raw/dblp.npz", 17716, 52867, 1639, [7920, 5645, 1982, 2169]),
    "cora_ml": ("cora_ml/raw/cora_ml.npz", 2995, 8158, 2879, [354, 402, 452, 442, 857, 193, 295]),
    "citeseer_full": ("citeseer_full/citeseer/raw/citeseer.npz", 4230, 5337, 602, None),
    "chameleon_filtered": ("chameleon_filtered/raw/chameleon_filtered.npz", 890, 8854, 2325, [242, 134, 209, 164, 141]),
    "squirrel_filtered": ("squirrel_filtered/raw/squirrel_filtered.npz", 2223, 46998, 2089, [756, 516, 397, 321, 233]),
    "actor": ("actor/raw/out1_graph_edges.txt", 7600, 26659, 932, [853, 1337, 1630, 1815, 1965]),
    "reed98": ("reed98/raw/data.mat", 962, 18812, 745, [504, 361]),
    "amherst41": ("amherst41/raw/data.mat", 2235, 90954, 1193, [1015, 1017]),
    "cornell5": ("cornell5/raw/data.mat", 18660, 790777, 4735, [8135, 8687]),
    "johnshopkins55": ("johnshopkins55/raw/data.mat", 5180, 186586, 2406, [2153, 2609]),
    "facebook_page_page": ("facebook_page_page/raw/facebook_page_page.npz", 22470, 170823, 4714, [6495, 6880, 5768, 3327]),
    "github_social": ("github_social/raw/github_social.npz", 37700, 289003, 4005, [27961, 9739]),
    "deezer_europe": ("deezer_europe/raw/deezer_europe.npz", 28281, 92752, 31241, [15743, 12538]),
    "ogbn_arxiv": ("ogbn_arxiv/raw/edge.csv.gz", 169343, 1157799, 128, None),
}
AUC = {"tolokers", "minesweeper", "questions"}


@pytest.mark.audit
@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published_ones_and_the_graph_is_canonical(name):
    file, nodes, edges, features, classes = PUBLISHED[name]
    graph = configured("dataset", name).load(need(file))
    assert (graph.num_nodes, graph.edges.shape[1] // 2, graph.num_features) == (nodes, edges, features)
    if classes is not None:
        assert np.bincount(graph.labels[graph.labels >= 0]).tolist() == classes and graph.num_classes == len(classes)
    assert graph.name == name and graph.metric == ("auc" if name in AUC else "accuracy")
    row, col = graph.edges
    key = row * nodes + col
    assert (np.diff(key) > 0).all() and (row != col).all()
    assert np.array_equal(np.sort(col * nodes + row), key)
    if sp.issparse(graph.features):
        assert graph.features.has_canonical_format and graph.features.dtype == np.float32


def _linked(tmp_path: Path, folder: str) -> str:
    """A writable root with the raw files of one dataset, since PyG writes beside them."""
    raw = tmp_path / folder / "raw"
    raw.mkdir(parents=True)
    for path in (DATA / folder / "raw").iterdir():
        os.symlink(path, raw / path.name)
    return str(tmp_path)


@pytest.mark.audit
@pytest.mark.parametrize(
    ("name", "folder", "kind", "title"),
    [
        ("cora", "Cora", "Planetoid", "Cora"),
        ("citeseer", "CiteSeer", "Planetoid", "CiteSeer"),
        ("photo", "Photo", "Amazon", "Photo"),
        ("cora_ml", "cora_ml", "CitationFull", "Cora_ML"),
        ("minesweeper", "minesweeper", "HeterophilousGraphDataset", "Minesweeper"),
        ("reed98", "reed98", "LINKXDataset", "reed98"),
        ("actor", "actor", "Actor", None),
    ],
)
def test_the_graph_is_the_one_that_pyg_loads(name, folder, kind, title, tmp_path):
    data_dir = need(PUBLISHED[name][0])
    from torch_geometric import datasets, utils

    root = _linked(tmp_path, folder)
    theirs = (getattr(datasets, kind)(f"{root}/{folder}") if title is None else getattr(datasets, kind)(root, title))[0]
    edges = utils.remove_self_loops(utils.coalesce(utils.to_undirected(theirs.edge_index, num_nodes=theirs.num_nodes)))[0]
    ours = configured("dataset", name).load(data_dir)
    assert np.array_equal(sp.csr_matrix(ours.features).toarray(), theirs.x.numpy())
    assert np.array_equal(ours.edges, edges.numpy()) and np.array_equal(ours.labels, theirs.y.numpy())


@pytest.mark.audit
@pytest.mark.parametrize(("name", "nodes", "edges"), [("photo", 7487, 119043), ("computers", 13381, 245778)])
def test_the_largest_component_has_the_counts_of_shchur_et_al(name, nodes, edges):
    graph = configured("dataset", name, largest_component=True).load(need(PUBLISHED[name][0]))
    assert (graph.num_nodes, graph.edges.shape[1] // 2) == (nodes, edges)


@pytest.mark.audit
def test_twitch_is_a_federation_of_seven_countries():
    graph = configured("dataset", "twitch").load(need("twitch_de/raw/twitch_de.npz"))
    assert np.bincount(graph.owner).tolist() == [9498, 7126, 4648, 6549, 1912, 4385, 2772]
    edges = [153138, 35324, 59382, 112666, 31299, 37304, 63462]
    row, col = graph.owner[graph.edges]
    assert np.array_equal(row, col) and (np.bincount(row) // 2).tolist() == edges
    assert graph.num_features == 3170 and graph.num_classes == 2
    clients = configured("split", "natural").assign(graph, None, 0)
    assert [nodes.size for nodes in clients] == np.bincount(graph.owner).tolist()


def test_cora_metis_masks_have_the_shares_that_openfgl_reports():
    # OpenFGL's own draw on METIS, 20 clients: 504, 1080, 1124. Another METIS seed shifts classes by a few nodes.
    from fgl_bench.data.federation import build_federations

    federations = build_federations(
        configured("dataset", "cora"), configured("split", "metis"), configured("scenario/sparsity", "none"),
        num_clients=20, seeds=[0, 1, 2], data_dir=need(PUBLISHED["cora"][0]), cache_dir=None,
    )  # fmt: skip
    for federation in federations:
        sizes = [sum(int(getattr(client, mask).sum()) for client in federation.clients) for mask in ("train", "val", "test")]
        assert sum(sizes) == 2708
        assert np.allclose(sizes, [504, 1080, 1124], atol=20)
