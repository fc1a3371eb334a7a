from __future__ import annotations

import subprocess
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fgl_bench.data.npz import read_arrays
from fgl_bench.data.own import keep
from fgl_bench.errors import UserError
from fgl_bench.utils.patience import say_once
from tests.data.graphs import configured

X = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
PARTS = {"x": X, "edge_index": np.array([[0, 1, 1, 2], [1, 0, 1, 1]]), "y": np.array([0, 1, -1, 1])}


def csr_parts():
    matrix = sp.csr_matrix(X)
    return {"x_data": matrix.data, "x_indices": matrix.indices, "x_indptr": matrix.indptr, "x_shape": np.array(matrix.shape)}


def save_npz(folder, **changes):
    path = folder / "graph.npz"
    np.savez(path, **{key: value for key, value in {**PARTS, **changes}.items() if value is not None})
    return str(path)


def save_pt(folder, **changes):
    path = folder / "graph.pt"
    parts = {key: torch.from_numpy(value) for key, value in PARTS.items()}
    torch.save({**parts, **changes}, path)
    return str(path)


def load(path, **changes):
    return configured("dataset", "custom", path=path, **changes).load(None)


@pytest.mark.parametrize(
    "save",
    [
        save_npz,
        lambda folder: save_npz(folder, x=None, **csr_parts()),
        save_pt,
        lambda folder: save_pt(folder, x=torch.from_numpy(X).to_sparse_coo()),
    ],
)
def test_every_layout_gives_the_same_canonical_graph(tmp_path, save):
    graph = load(save(tmp_path))
    assert graph.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.labels.tolist() == [0, 1, -1, 1] and graph.num_classes == 2
    assert sp.issparse(graph.features) and np.array_equal(graph.features.toarray(), X.astype(np.float32))


def test_num_classes_owner_and_the_largest_component(tmp_path):
    path = save_npz(tmp_path, num_classes=np.array(5), owner=np.array([7, 7, 3, 3]))
    graph = load(path, largest_component=True, metric="auc")
    assert graph.num_classes == 5 and graph.owner.tolist() == [7, 7, 3] and graph.num_nodes == 3 and graph.metric == "auc"


ENDLESS = torch.zeros(1).expand(10**6, 10**6)


@pytest.mark.parametrize("save", [save_npz, save_pt])
def test_what_the_keys_do_not_name_is_not_read(tmp_path, save):
    other = {"notes": np.array([{}], dtype=object)} if save is save_npz else {"notes": ENDLESS}
    assert load(save(tmp_path, **other)).num_nodes == 4


@pytest.mark.parametrize("kind", [str, bytes])
def test_owners_may_be_named(tmp_path, kind):
    names = ["north", "east", "north", "south"]
    given = np.array([name if kind is str else name.encode() for name in names])
    graph = load(save_npz(tmp_path, owner=given))
    assert graph.owner.tolist() == [1, 0, 1, 2], "in sorted order: east, north, south"
    if kind is str:
        assert load(save_pt(tmp_path, owner=names)).owner.tolist() == [1, 0, 1, 2]


def test_classes_that_no_node_has_may_be_announced(tmp_path):
    assert load(save_npz(tmp_path, num_classes=np.array(1000))).num_classes == 1000
    assert load(save_pt(tmp_path, num_classes=7)).num_classes == 7


class Bomb:
    """Runs code when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_a_file_that_would_run_code_is_refused_and_does_not_run_it(tmp_path, suffix):
    mark, path = tmp_path / "ran", tmp_path / f"graph.{suffix}"
    if suffix == "npz":
        np.savez(path, **{**PARTS, "y": np.array([Bomb(mark)], dtype=object)})
    else:
        torch.save({"y": Bomb(mark)}, path)
    mark.unlink(missing_ok=True)
    with pytest.raises(UserError, match="cannot be read as plain arrays"):
        load(str(path))
    assert not mark.exists()


# ---- labels


@pytest.mark.parametrize(
    ("y", "labels", "classes", "line"),
    [
        (np.array(["b", "a", "", "c"]), [1, 0, -1, 2], 3, "numbered from 0 in sorted order: a, b, c"),
        (np.array([b"b", b"a", b"", b"c"]), [1, 0, -1, 2], 3, "a, b, c"),
        (np.array([True, False, True, False]), [1, 0, 1, 0], 2, ""),
        (np.array([1.0, 0.0, -1.0, 2.0]), [1, 0, -1, 2], 3, ""),
        (np.array([3, 1, -1, 7]), [1, 0, -1, 2], 3, "1, 3, 7; with num_classes they would stay"),
        (np.array([1, 2, 3, 1]), [0, 1, 2, 0], 3, "1, 2, 3"),
        (np.array([10**6, 0, 1, 1]), [2, 0, 1, 1], 3, "0, 1, 1000000"),
        (np.eye(4, 5), [0, 1, 2, 3], 5, "one-hot"),
        (np.array([[0], [1], [-1], [1]]), [0, 1, -1, 1], 2, ""),
    ],
)
def test_labels_become_numbers_and_a_line_says_how(tmp_path, capsys, y, labels, classes, line):
    say_once.cache_clear()
    graph = load(save_npz(tmp_path, y=y))
    said = capsys.readouterr().err
    assert graph.labels.tolist() == labels and graph.num_classes == classes
    assert line in said and said.count("\n") == bool(line)


def test_declared_classes_keep_integers_as_they_are(tmp_path, capsys):
    graph = load(save_npz(tmp_path, y=np.array([3, 1, -1, 7]), num_classes=np.array(9)))
    assert graph.labels.tolist() == [3, 1, -1, 7] and graph.num_classes == 9 and not capsys.readouterr().err


def test_several_labels_a_node(tmp_path, capsys):
    say_once.cache_clear()
    y = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 1]])
    graph = load(save_npz(tmp_path, y=y))
    assert graph.labels.tolist() == y.tolist() and graph.num_classes == 3 and "several labels for a node" in capsys.readouterr().err


# ---- what else a file has


def mask(*nodes):
    return np.isin(np.arange(4), nodes)


MASKS = {"train_mask": mask(0), "val_mask": mask(1), "test_mask": mask(3)}


def test_what_is_ignored_is_named(tmp_path, capsys):
    say_once.cache_clear()
    graph = load(save_npz(tmp_path, edge_weight=np.ones(4), pos=X, train_mask=np.array([0, 2]), test_mask=mask(3)))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("ignored: edge_weight, pos, train_mask (a mask has one true or false for every node)")
    assert list(graph.masks) == ["test_mask"]


def test_masks_follow_their_nodes_into_the_largest_component(tmp_path):
    graph = load(save_npz(tmp_path, **{**MASKS, "test_mask": mask(2).astype(np.uint8)}), largest_component=True)
    assert {name: each.tolist() for name, each in graph.masks.items()} == {
        "train_mask": [True, False, False],
        "val_mask": [False, True, False],
        "test_mask": [False, False, True],
    }


# ---- PyG and networkx


def pyg(**more):
    from torch_geometric.data import Data

    return Data(**{key: torch.from_numpy(value) for key, value in PARTS.items()}, **more)


def saved(folder, content):
    torch.save(content, folder / "graph.pt")
    return str(folder / "graph.pt")


def same(graph):
    return (
        graph.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
        and graph.labels.tolist() == [0, 1, -1, 1]
        and np.array_equal(graph.features.toarray(), X.astype(np.float32))
    )


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: [data], lambda data: (data.to_dict(), None, type(data))])
def test_a_saved_data_is_taken(tmp_path, capsys, wrap):
    say_once.cache_clear()
    masks = {name: torch.from_numpy(each) for name, each in MASKS.items()}
    graph = load(saved(tmp_path, wrap(pyg(edge_attr=torch.ones(4, 2), **masks))))
    assert same(graph) and list(graph.masks) == list(MASKS)
    assert "ignored: edge_attr\n" in capsys.readouterr().err


def test_a_saved_data_is_taken_where_pyg_is_not_imported(tmp_path):
    path = saved(tmp_path, pyg())
    code = (
        "import sys; from fgl_bench.data.own import read_pt; from pathlib import Path; content = read_pt(Path(sys.argv[1])).content;"
        "assert 'torch_geometric' not in sys.modules; print(content['y'].tolist(), content['x'].shape)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.stdout == "[0, 1, -1, 1] (4, 3)\n", done.stderr


def test_half_precision_is_read(tmp_path):
    assert same(load(save_pt(tmp_path, x=torch.from_numpy(X).bfloat16())))


def network():
    import networkx

    found = networkx.Graph([("b", "a"), ("b", "c")])
    found.add_node("d")
    for number, node in enumerate("abcd"):
        found.nodes[node].update(x=X[number].tolist(), y=[0, 1, None, 1][number], size=3)
    found.edges["b", "a"]["weight"] = 2.0
    order = networkx.Graph()
    order.add_nodes_from((node, found.nodes[node]) for node in "abcd")
    order.add_edges_from(found.edges(data=True))
    return order


@pytest.mark.parametrize("kind", ["dict", "Data", "networkx", "sparse"])
def test_an_object_is_kept_once_under_its_content(tmp_path, capsys, kind):
    say_once.cache_clear()
    value = {"dict": {**PARTS, "y": PARTS["y"].tolist(), "weights": 1}, "Data": pyg(z=torch.ones(1)), "networkx": network()}
    value["sparse"] = {**PARTS, "x": sp.csr_matrix(X)}
    path = keep(value[kind], str(tmp_path))
    assert same(load(path)) and keep(value[kind], str(tmp_path)) == path and len(list(tmp_path.rglob("*.npz"))) == 1
    ignored = {"dict": "weights", "Data": "z", "networkx": "size, weight of edges", "sparse": ""}[kind]
    assert f"ignored: {ignored}\n" * bool(ignored) in capsys.readouterr().err
    assert keep({**PARTS, "x": X + 1}, str(tmp_path)) != path
    open(path, "wb").close()
    assert same(load(keep(value[kind], str(tmp_path)))), "a damaged file is written again"


# ---- one file for each client


def test_one_file_for_each_owner(tmp_path):
    for number, name in enumerate(("b", "a", "c")):
        np.savez(tmp_path / f"{name}.npz", x=X + number, edge_index=PARTS["edge_index"], y=np.array(["u", "v", "", name]), **MASKS)
    graph = load(str(tmp_path / "*.npz"))
    assert graph.num_nodes == 12 and graph.owner.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert graph.labels.reshape(3, 4).tolist() == [[3, 4, -1, 0], [3, 4, -1, 1], [3, 4, -1, 2]], "one numbering: a, b, c, u, v"
    assert np.array_equal(graph.features[4:8].toarray() if sp.issparse(graph.features) else graph.features[4:8], X.astype(np.float32))
    assert graph.edges.shape == (2, 12) and graph.masks["val_mask"].tolist() == [False, True, False, False] * 3
    np.savez(tmp_path / "d.npz", **{**PARTS, "x": X[:, :2], "y": np.array(["u"] * 4)})
    with pytest.raises(UserError, match=r"dataset\.path=.*\*\.npz: the files must agree in the columns of x"):
        load(str(tmp_path / "*.npz"))
    with pytest.raises(UserError, match="no file has such a name"):
        load(str(tmp_path / "none*.npz"))


def test_a_small_file_of_a_huge_array_is_refused_by_its_header(tmp_path):
    path = tmp_path / "graph.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {**PARTS, "x": None}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if array is None:  # the header alone; reading the array would fail
                    np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (4, 10**8)})
                else:
                    np.lib.format.write_array(member, array)
    with pytest.raises(UserError, match="has 100000000 columns; at most 1000000"):
        load(str(path))
    with pytest.raises(UserError, match="has 100000000 columns; at most 1000000"):
        read_arrays("cora", path, ["x"])


def test_the_path_is_checked(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    for path, message in (
        (None, "dataset.path is not set"),
        (str(tmp_path / "none.npz"), "there is no such file"),
        ("graph.csv", "must end in .npz or .pt"),
        ("", "dataset.path is not set"),
        (5, "dataset.path=5: must be the name of a .npz or .pt file"),
        (1.5, "dataset.path=1.5: must be the name"),
        ("x" * 3000 + ".npz", "File name too long"),
        ("a\0b.npz", "cannot be read"),
        (str(tmp_path / "folder.npz"), "is a folder"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            load(path)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
