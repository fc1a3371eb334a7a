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
        ({"y": np.array([-1, -1, -1, -1])}, "it has no labelled node"),
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


def test_the_path_is_checked(tmp_path):
    for path, message in (
        (None, "dataset.path is not set"),
        (str(tmp_path / "none.npz"), "there is no such file"),
        ("graph.csv", "must end in .npz or .pt"),
    ):
        with pytest.raises(UserError, match=message):
            load(path)


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
