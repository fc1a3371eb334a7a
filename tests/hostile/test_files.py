"""Files of graphs of one's own: damaged, of wrong shapes and types, with code in them, or far too large for what they hold."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest
import torch

from tests.hostile.bed import Answer, Case, Pool, as_expected

N = 40
X = np.random.default_rng(0).random((N, 5), dtype=np.float32)
EDGES = np.array([np.arange(N), (np.arange(N) + 1) % N])
Y = np.arange(N) % 3
RUN = "num_clients=3 rounds=2 seeds=[0] algorithm=fedavg model.hidden=8".split()


class Bomb:
    """What a pickle runs when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("ran", "w"))


def npz(**changes: Any) -> bytes:
    """A graph's file; a key that is None is left out."""
    arrays = {"x": X, "edge_index": EDGES, "y": Y, **changes}
    file = io.BytesIO()
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file.getvalue()


def pt(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def graph(**changes: Any) -> dict[str, Any]:
    plain = {"x": torch.from_numpy(X), "edge_index": torch.from_numpy(EDGES), "y": torch.from_numpy(Y)}
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    return file.getvalue()


def header(shape: str, descr: str = "<f4") -> bytes:
    """The first bytes of a .npy file that claims a shape and holds nothing."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (10 + len(text)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


WHOLE = npz()
NPZ: dict[str, bytes] = {
    "cut": WHOLE[: len(WHOLE) // 2],
    "flipped": WHOLE[:200] + bytes([WHOLE[200] ^ 255]) + WHOLE[201:],
    "zip of text": archive(**{"x.npy": b"hello"}),
    "a pickle": pickle.dumps(Bomb()),
    "object labels": npz(y=np.array([Bomb()] * N, dtype=object)),
    "no y": npz(y=None),
    "no edges": npz(edge_index=None),
    "x of one dimension": npz(x=X[:, 0]),
    "x of words": npz(x=np.array([["a"] * 5] * N)),
    "x with nan": npz(x=np.where(np.eye(N, 5) > 0, np.nan, X)),
    "x beyond float32": npz(x=X.astype(np.float64) * 1e300),
    "x without columns": npz(x=X[:, :0]),
    "x of records": npz(x=np.zeros(N, dtype=[("a", "f4"), ("b", "f4")])),
    "edges of real numbers": npz(edge_index=EDGES + 0.5),
    "edges transposed": npz(edge_index=EDGES.T),
    "an edge to nowhere": npz(edge_index=EDGES + 1),
    "an edge from below": npz(edge_index=EDGES - 1),
    "an edge beyond 64 bits": npz(edge_index=EDGES.astype(np.uint64) + np.uint64(2**63)),
    "too few labels": npz(y=Y[:-1]),
    "labels of two dimensions": npz(y=np.stack([Y, Y], 1)),
    "real labels": npz(y=Y + 0.5),
    "no labeled node": npz(y=np.full(N, -1)),
    "classes of words": npz(num_classes=np.array("abc")),
    "fewer classes than labels": npz(num_classes=np.array(2)),
    "classes without end": npz(num_classes=np.array(10**12)),
    "negative owners": npz(owner=np.where(np.arange(N) == 0, -1, Y)),
    "too few owners": npz(owner=Y[:-1]),
    "a shape that is claimed": archive(**{"x.npy": header("(1000000000000, 1000)"), "y.npy": b"", "edge_index.npy": b""}),
    "a negative shape": archive(**{"x.npy": header("(-1, 5)"), "y.npy": b"", "edge_index.npy": b""}),
    "an object header": archive(**{"x.npy": header("(40, 5)", "|O") + pickle.dumps(Bomb()), "y.npy": b"", "edge_index.npy": b""}),
}
PT: dict[str, Any] = {
    "a pickle": pickle.dumps(Bomb()),
    "a bomb": pt(Bomb()),
    "a bomb inside": pt(graph(x=Bomb())),
    "a tensor": pt(torch.zeros(3)),
    "x is a number": pt(graph(x=5)),
    "x is on no device": pt(graph(x=torch.empty(N, 5, device="meta"))),
    "no y": pt(graph(y=None)),
    "edges are a list": pt(graph(edge_index=[[0, 1], [2]])),
    "classes are words": pt(graph(num_classes="abc")),
    "an expanded tensor": pt(graph(x=torch.zeros(1, 1).expand(10**6, 10**6))),
}
PATHS = {
    "": "dataset.path",
    "nowhere.npz": "there is no such file",
    "folder.npz": "folder.npz",
    "graph.csv": "must end in",
    "/proc/self/mem": "must end in",
    "~no_such_user/x.npz": "no_such_user",
    "x" * 300 + ".npz": "dataset=custom",
}


NUMBERED = {  # labels that are numbered in sorted order
    "labels of words": npz(y=np.array(["a"] * N)),
    "a label of a million": npz(y=np.where(np.arange(N) == 0, 10**6, Y)),
    "a label of a million millions": npz(y=np.where(np.arange(N) == 0, 10**12, Y)),
    "a label of 2**63 - 1": npz(y=np.where(np.arange(N) == 0, 2**63 - 1, Y)),
}


def case(file: str, content: Any, message: str | None = "graph|dataset", **more: Any) -> Case:
    arguments = ("dataset=custom", f'dataset.path="{file}"', *RUN)
    return Case(arguments, message, files={file: content}, check=not_run, **more)


def not_run(answer: Answer) -> None:
    assert "ran" not in answer.left, "the file has run code"


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in (1, 2))])
def test_npz(part: int, pool: Pool) -> None:
    """A third of the files by day."""
    some = list(NPZ.items())[part::3]
    as_expected(pool, [case(f"graph-{name.replace(' ', '-')}.npz".replace("*", "p"), content) for name, content in some])
    why = "labels are numbered in sorted order"
    as_expected(pool, [case(f"labels-{number}.npz", each, None, reason=why) for number, each in enumerate(NUMBERED.values())])


@pytest.mark.nightly
def test_pt(pool: Pool) -> None:
    as_expected(pool, [case(f"graph-{name.replace(' ', '-')}.pt", content) for name, content in PT.items()])


@pytest.mark.nightly
def test_paths(pool: Pool) -> None:
    files = {"folder.npz": None, "graph.csv": "1,2"}
    cases = [Case(("dataset=custom", f'dataset.path="{path}"', *RUN), message, files=files) for path, message in PATHS.items()]
    odd = ("[a]", "{a:1}", "true", "nan")
    cases += [Case(("dataset=custom", f"dataset.path={text}", *RUN), "dataset.path", files=files) for text in odd]
    as_expected(pool, cases)


@pytest.mark.nightly
def test_graphs_that_are_strange_and_right(pool: Pool) -> None:
    fine = {
        "plain": (WHOLE, "a plain graph"),
        "labels of words": (npz(y=np.array(["a"] * N)), "labels are numbered, here one class"),
        "a label of 2pp63 - 1": (npz(y=np.where(np.arange(N) == 0, 2**63 - 1, Y)), "labels with gaps are numbered"),
        "loops": (npz(edge_index=np.array([[0, 1], [0, 1]])), "loops are taken out, and a graph may have no edges"),
        "twice": (npz(edge_index=np.concatenate([EDGES, EDGES], 1)), "an edge that is named twice is one edge"),
        "unlabelled": (npz(y=np.where(np.arange(N) == 0, -1, Y)), "-1 is a node without a label"),
        "small": (npz(x=X.astype(np.float16)), "half precision is widened"),
        "whole": (npz(x=np.ones((N, 5), dtype=np.int8)), "integers are numbers"),
    }
    cases = [case(f"graph-{name}.npz", content, None, reason=reason) for name, (content, reason) in fine.items()]
    sparse = pt(graph(x=torch.from_numpy(X).to_sparse()))
    as_expected(pool, [*cases, case("graph-sparse.pt", sparse, None, reason="features may be a sparse tensor")])
