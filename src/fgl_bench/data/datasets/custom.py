"""A user's own graph, from an ``.npz`` of plain arrays or a ``.pt`` dictionary of tensors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.checks import MOST_FEATURES
from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import CSR_PARTS, csr, one_line, present, shown
from fgl_bench.errors import UserError

LAYOUT = "it needs x [N, F] (or x_data, x_indices, x_indptr, x_shape), edge_index [2, E] and y [N]"
KEYS = ("x", *(f"x_{part}" for part in CSR_PARTS), "edge_index", "y", "num_classes", "owner")
MOST_CLASSES = 1000
"""Classes that ``num_classes`` may announce where the graph has fewer nodes."""


@dataclass
class Custom(Dataset):
    """The graph in ``path``: keys x (or its CSR parts), edge_index, y (-1 = no label), optional num_classes and owner.

    ``num_classes`` is a whole number; without it the largest label counts, which must be below the number of nodes. ``owner [N]``
    names the client of every node for ``split=natural``: integers from 0, or strings; clients are in sorted order.

    Attributes:
        path: a ``.npz`` or ``.pt`` file; neither is unpickled, so a file of unknown origin cannot run code.
    """

    path: str | None

    def files(self, root: Path) -> dict[str, Path]:
        """The file by its name as configured; a relative path is below the current folder, not below ``root``."""
        if self.path is None or self.path == "":
            raise UserError("dataset.path is not set: it must name your .npz or .pt file")
        if not isinstance(self.path, str):
            raise UserError(f"dataset.path={self.path}: must be the name of a .npz or .pt file")
        path = Path(os.path.expanduser(self.path))
        if path.suffix not in READERS:
            raise UserError(f"dataset.path={shown(path)}: must end in {' or '.join(READERS)}")
        return {self.path: path}

    def read(self, root: Path) -> Graph:
        (path,) = self.files(root).values()
        source = f"dataset.path={shown(path)}"
        if not present("dataset.path", path):
            raise UserError(f"{source}: there is no such file")
        try:
            content = READERS[path.suffix](path)
        except Exception as error:  # parsers of damaged files raise nearly anything
            raise UserError(f"{source}: cannot be read as plain arrays ({one_line(error)})") from None
        return self._checked(content, source)

    def _checked(self, content: dict[str, Any], source: str) -> Graph:
        labels = _integers(content, "y", source).reshape(-1)
        features = _features(content, labels.size, source)
        nodes = labels.size
        edges = _integers(content, "edge_index", source)
        if edges.ndim != 2 or edges.shape[0] != 2:
            raise UserError(f"{source}: edge_index has shape {list(edges.shape)}; {LAYOUT}")
        if edges.size and (edges.min() < 0 or edges.max() >= nodes):
            raise UserError(f"{source}: edge_index names a node outside 0..{nodes - 1}")
        if content.get("num_classes") is None:
            num_classes = max(int(labels.max(initial=-1)) + 1, 1)
            if num_classes > nodes:
                raise UserError(f"{source}: y holds the label {num_classes - 1} for {nodes} nodes; number the classes from 0")
        else:
            num_classes = _class_count(content["num_classes"], nodes, source)
        owner = None if content.get("owner") is None else _owners(content, source)
        if owner is not None and owner.size != nodes:
            raise UserError(f"{source}: owner has {owner.size} entries for {nodes} nodes")
        return self.graph(features, edges[0], edges[1], labels, num_classes=num_classes, owner=owner)


def _read_npz(path: Path) -> dict[str, Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files if key in KEYS}


def _read_pt(path: Path) -> dict[str, Any]:
    import torch

    # Without the check a sparse tensor may name cells that it does not have.
    with path.open("rb") as file, torch.sparse.check_sparse_tensor_invariants():
        content = torch.load(file, weights_only=True, map_location="cpu")
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}, not a dictionary of tensors")
    return {key: _array(content[key]) for key in KEYS if key in content}


READERS = {".npz": _read_npz, ".pt": _read_pt}


def _array(value: Any) -> Any:
    """Dense tensors as arrays; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    if value.untyped_storage().nbytes() < value.numel() * value.element_size():
        raise ValueError(f"a tensor of shape {list(value.shape)} repeats its numbers")
    return value.detach().numpy()


def _features(content: dict[str, Any], nodes: int, source: str) -> np.ndarray | sp.csr_matrix:
    """x, whose shape is checked before anything of that size is made."""
    parts = [f"x_{part}" for part in CSR_PARTS]
    sparse = all(part in content for part in parts)
    if not sparse and "x" not in content:
        raise UserError(f"{source}: no x; {LAYOUT}")
    try:
        given = content["x_shape"] if sparse else content["x"]
        given = given if hasattr(given, "shape") else np.asarray(given)
        shape = [int(size) for size in (given if sparse else given.shape)]
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UserError(f"{source}: x is not a numeric matrix ({one_line(error)}); {LAYOUT}") from None
    if len(shape) != 2 or min(shape) < 1:
        raise UserError(f"{source}: x has shape {shape}; {LAYOUT}")
    if shape[0] != nodes:
        raise UserError(f"{source}: y has {nodes} entries for {shape[0]} nodes")
    if shape[1] > MOST_FEATURES:
        raise UserError(f"{source}: x has {shape[1]} columns; at most {MOST_FEATURES} are allowed")
    try:
        matrix = csr({part: np.asarray(content[part]) for part in parts}, "x_") if sparse else _matrix(given)
        if matrix.dtype.kind not in "biuf":
            raise TypeError(f"{matrix.dtype}")
        with np.errstate(over="ignore"):  # what is too large for float32 is not finite then, which is refused
            return matrix.astype(np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UserError(f"{source}: x is not a numeric matrix ({one_line(error)}); {LAYOUT}") from None


def _matrix(value: Any) -> np.ndarray | sp.csr_matrix:
    """An array as it is, a sparse tensor as CSR."""
    if isinstance(value, np.ndarray):
        return value
    coo = value.detach().to_sparse_coo().coalesce()
    return sp.csr_matrix((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))


def _plain(content: dict[str, Any], key: str, source: str) -> np.ndarray:
    if key not in content:
        raise UserError(f"{source}: no {key}; {LAYOUT}")
    try:
        return np.asarray(content[key])
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UserError(f"{source}: {key} is not an array ({one_line(error)}); {LAYOUT}") from None


def _integers(content: dict[str, Any], key: str, source: str) -> np.ndarray:
    values = _plain(content, key, source)
    if values.size and values.dtype.kind not in "iu":
        raise UserError(f"{source}: {key} must hold integers, not {values.dtype}")
    if values.size and values.max() > np.iinfo(np.int64).max:
        raise UserError(f"{source}: {key} holds {values.max()}, which is too large")
    return values.astype(np.int64)


def _class_count(given: Any, nodes: int, source: str) -> int:
    most = max(nodes, MOST_CLASSES)
    count = _plain({"num_classes": given}, "num_classes", source)
    if count.ndim or count.dtype.kind not in "iu" or not 1 <= count <= most:
        text = " ".join(str(given).split())
        raise UserError(f"{source}: num_classes={text[:60]}: must be a whole number from 1 to {most}")
    return int(count)


def _owners(content: dict[str, Any], source: str) -> np.ndarray:
    """Integers as they are, strings as their places in sorted order."""
    values = _plain(content, "owner", source).reshape(-1)
    if values.dtype.kind in "US":
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    owner = _integers(content, "owner", source).reshape(-1)
    if owner.size and owner.min() < 0:
        raise UserError(f"{source}: owner holds {owner.min()}; owners are integers from 0, or strings")
    return owner
