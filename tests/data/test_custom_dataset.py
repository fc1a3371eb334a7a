from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fgl_bench.errors import UserError
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "no x; it needs x"),
        ({"y": None}, "no y; it needs x"),
        ({"edge_index": None}, "no edge_index"),
        ({"edge_index": np.zeros((3, 2), dtype=int)}, r"edge_index has shape \[3, 2\]"),
        ({"edge_index": np.array([[0], [4]])}, r"edge_index names a node outside 0\.\.3"),
        ({"edge_index": np.array([[0], [-1]])}, r"edge_index names a node outside 0\.\.3"),
        ({"edge_index": np.array([[0.5], [1.0]])}, "edge_index must hold integers, not float64"),
        ({"y": np.array([0, 1])}, "y has 2 entries for 4 nodes"),
        ({"y": np.array([-1, -1, -1, -1])}, "it has no labeled node"),
        ({"y": np.array([0, 1, -2, 0])}, "a label lies outside"),
        ({"num_classes": np.array(1)}, r"a label lies outside -1\.\.0"),
        ({"x": np.full((4, 2), np.nan)}, "a feature is not a finite number"),
        ({"x": np.array(["a", "b", "c", "d"])}, "x is not a numeric matrix|x has shape"),
        ({"x": np.zeros(4)}, r"x has shape \[4\]"),
        ({"owner": np.array([1])}, "owner has 1 entries for 4 nodes"),
        ({"x": None, **csr_parts(), "x_indices": np.array([0, 1, 9])}, "x is not a numeric matrix"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        load(save_npz(tmp_path, **changes))
    assert "\n" not in str(caught.value)


LARGE = np.array([10**6, 0, 1, 1])
SHAPES = {**csr_parts(), "x": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({"num_classes": np.array(bad)}, f"num_classes={text}: must be a whole number from 1 to 1000")
            for bad, text in [("abc", "abc"), (np.nan, "nan"), ([3], r"\[3\]")]
            + [(-1, "-1"), (0, "0"), (2.0, "2.0"), (10**9, "1000000000"), (True, "True")]
        ),
        ({"y": LARGE}, "y holds the label 1000000 for 4 nodes"),
        ({"y": LARGE**2}, "y holds the label 1000000000000 for 4 nodes"),
        ({"y": np.array([4, 0, 1, 1])}, "y holds the label 4 for 4 nodes"),
        ({"y": np.array([2**64 - 1, 0, 0, 0], np.uint64)}, "y holds 18446744073709551615, which is too large"),
        ({"y": np.array([0.0, 1.0, 1.0, 0.0])}, "y must hold integers, not float64"),
        ({"y": np.array(["a", "b", "c", "d"])}, "y must hold integers, not <U1"),
        ({"y": np.zeros((4, 3), int)}, "y has 12 entries for 4 nodes"),
        ({"y": np.zeros(0, int)}, "y has 0 entries for 4 nodes"),
        ({"edge_index": np.array([0, 1])}, r"edge_index has shape \[2\]"),
        ({"edge_index": np.zeros(0)}, r"edge_index has shape \[0\]"),
        ({"edge_index": np.full((2, 1), 2**64 - 1, np.uint64)}, "edge_index holds 18446744073709551615"),
        ({"edge_index": np.full((2, 1), 2**62)}, r"edge_index names a node outside 0\.\.3"),
        ({"x": np.zeros((0, 3))}, r"x has shape \[0, 3\]"),
        ({"x": np.zeros((4, 0))}, r"x has shape \[4, 0\]"),
        ({"x": np.zeros((4, 1, 1))}, r"x has shape \[4, 1, 1\]"),
        ({"x": np.array(1.0)}, r"x has shape \[\]"),
        ({"x": np.zeros((4, 2), complex)}, r"x is not a numeric matrix \(complex128\)"),
        ({"x": np.zeros((4, 2), "M8[s]")}, "x is not a numeric matrix"),
        ({"x": np.full((4, 2), 1e300)}, "a feature is not a finite number"),
        ({"x": np.array([[np.inf]] * 4)}, "a feature is not a finite number"),
        ({**SHAPES, "x_shape": np.array([4, 10**9])}, "x has 1000000000 columns; at most 1000000 are allowed"),
        ({**SHAPES, "x_shape": np.array([10**12, 3])}, "y has 4 entries for 1000000000000 nodes"),
        ({**SHAPES, "x_shape": np.array([4, -3])}, r"x has shape \[4, -3\]"),
        ({**SHAPES, "x_shape": np.array([4])}, r"x has shape \[4\]"),
        ({**SHAPES, "x_shape": np.array([4.0, 3.0])}, "must hold integers"),
        ({**SHAPES, "x_shape": np.array(4)}, "x is not a numeric matrix"),
        ({**SHAPES, "x_shape": np.array([np.nan, 3])}, "x is not a numeric matrix"),
        ({**SHAPES, "x_shape": np.array(["a", "b"])}, "x is not a numeric matrix"),
        ({**SHAPES, "x_data": np.array(["a", "b", "c"])}, "x is not a numeric matrix"),
        ({**SHAPES, "x_data": np.array([1.0, np.nan, 2.0])}, "a feature is not a finite number"),
        ({**SHAPES, "x_indices": np.array([0.5, 1.0, 2.0])}, "x is not a numeric matrix"),
        ({**SHAPES, "x_indptr": np.array([0, 5, -5, 1, 3])}, "x is not a numeric matrix"),
        ({**SHAPES, "x_indptr": np.zeros((5, 1), int)}, "x is not a numeric matrix"),
        ({"owner": np.array([0, 1, -1, 0])}, "owner holds -1; owners are integers from 0, or strings"),
        ({"owner": np.array([0.0, 1.0, 1.0, 0.0])}, "owner must hold integers, not float64"),
        ({"owner": np.array(["a"])}, "owner has 1 entries for 4 nodes"),
    ],
)
def test_hostile_arrays_are_refused_in_one_line_before_anything_is_made_of_them(tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        load(save_npz(tmp_path, **changes))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def cells(places, values, shape):
    """A sparse tensor, sound or not."""
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        return torch.sparse_coo_tensor(places, values, shape)


ENDLESS = torch.zeros(1).expand(10**6, 10**6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": [[0, 1], [1]]}, "edge_index is not an array"),
        ({"edge_index": [[0, 1], [1, None]]}, "edge_index must hold integers, not object"),
        ({"y": "labels"}, "y must hold integers"),
        ({"y": {0: 1}}, "y must hold integers, not object"),
        ({"y": [0, 1, 10**30, 0]}, "y must hold integers, not object"),
        ({"x": [[1.0], [2.0, 3.0], [], []]}, "x is not a numeric matrix"),
        ({"x": ENDLESS}, r"a tensor of shape \[1000000, 1000000\] repeats its numbers"),
        ({"y": torch.zeros(1, dtype=torch.int64).expand(10**12)}, "repeats its numbers"),
        ({"x": torch.zeros(4, 2, dtype=torch.complex64)}, "x is not a numeric matrix"),
        ({"x": torch.zeros(4, 2, dtype=torch.bfloat16)}, "cannot be read as plain arrays"),
        ({"x": cells([[0], [0]], [1.0], (10**9, 3))}, "y has 4 entries for 1000000000 nodes"),
        ({"x": cells([[0], [0]], [1.0], (4, 10**9))}, "x has 1000000000 columns"),
        ({"x": cells([[9], [0]], [1.0], (4, 3))}, "cannot be read as plain arrays"),
        ({"x": cells([[0], [0]], [[1.0, 2.0]], (4, 3, 2))}, r"x has shape \[4, 3, 2\]"),
        ({"y": torch.tensor([0, 1, 1, 0]).to_sparse()}, "y is not an array|y must hold integers"),
        ({"num_classes": "many\nclasses"}, "num_classes=many classes: must be"),
        ({"num_classes": [[1], []]}, "num_classes is not an array"),
        ({"owner": ["a", None, "b", "c"]}, "owner must hold integers, not object"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*sparse.*:UserWarning")
def test_hostile_tensors_and_lists_are_refused_in_one_line(tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        load(save_pt(tmp_path, **changes))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


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


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half", pickle.dumps([1, 2])])
@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_rubbish_is_refused(tmp_path, suffix, content):
    path = tmp_path / f"graph.{suffix}"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"dataset\.path=.*graph"):
        load(str(path))
