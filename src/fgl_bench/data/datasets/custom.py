"""A user's own graph, from an ``.npz`` of plain arrays, a ``.pt`` dictionary of tensors or a PyG ``Data``, or one file for each client."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset, side_by_side
from fgl_bench.data.graph import Features, Graph
from fgl_bench.data.masks import GIVEN
from fgl_bench.data.npz import CSR_PARTS, csr
from fgl_bench.data.own import READERS, plain_labels, sparse_matrix
from fgl_bench.data.raw import MOST_FEATURES, one_line, present, shown
from fgl_bench.errors import UserError
from fgl_bench.utils.patience import say_once

LAYOUT = "it needs x [N, F] (or x_data, x_indices, x_indptr, x_shape), edge_index [2, E] and y [N]"
MOST_CLASSES = 1000
"""Classes that ``num_classes`` may announce where the graph has fewer nodes."""
MOST_NAMED = 10
"""Classes that a line about them names."""
UNITS, MOST_DENSE = 100.0, 10_000
"""A column has another unit if its standard deviation is this multiple of the median one; columns of a matrix that may be dense."""


class Part(NamedTuple):
    """The graph of one file."""

    features: np.ndarray | sp.csr_matrix
    edges: np.ndarray
    labels: np.ndarray
    num_classes: int | None
    owner: np.ndarray | None
    masks: dict[str, np.ndarray]
    ids: np.ndarray | None = None


@dataclass
class Custom(Dataset):
    """The graph in ``path``: keys x (or its CSR parts), edge_index and y, optional num_classes, owner and masks.

    ``y [N]`` holds integers (-1 = no label) or strings ("" = no label). Classes are numbered in sorted order; with ``num_classes``,
    integers stay as they are, and must be below it. ``y [N, K]`` holds 0 and 1: one-hot, or several labels a node.
    ``owner [N]`` names the client of every node for ``split=natural``: integers from 0, or strings; clients are in sorted order.
    ``id [N]`` names the nodes in predictions: strings or integers. ``train_mask``, ``val_mask`` and ``test_mask`` are bool ``[N]`` or
    ``[N, K]``, for ``split.masks=given``.

    Attributes:
        path: a ``.npz`` or ``.pt`` file, or a pattern such as ``clients/*.npz``: one file for each owner, in sorted order. No file is
            unpickled, so one of unknown origin cannot run code.
        standardize: subtract from every column of x its mean over all nodes, and divide by its standard deviation.
    """

    own_masks: ClassVar[bool] = True

    path: str | None
    standardize: bool = False

    def files(self, root: Path) -> dict[str, Path]:
        """The files by their names as configured; a relative path is below the current folder, not below ``root``."""
        if self.path is None or self.path == "":
            raise UserError("dataset.path is not set: it must name your .npz or .pt file")
        if not isinstance(self.path, str):
            raise UserError(f"dataset.path={self.path}: must be the name of a .npz or .pt file")
        path = Path(os.path.expanduser(self.path))
        if path.suffix not in READERS:
            raise UserError(f"dataset.path={shown(path)}: must end in {' or '.join(READERS)}; fgl-bench import makes such a file of tables")
        if "*" not in path.name and "?" not in path.name:
            return {self.path: path}
        paths = sorted(Path(name) for name in glob.glob(str(path)))
        if not paths:
            raise UserError(f"dataset.path={shown(path)}: no file has such a name")
        return {str(each): each for each in paths}

    def read(self, root: Path) -> Graph:
        files, parts, others = self.files(root), [], []
        for path in files.values():
            source = f"dataset.path={shown(path)}"
            if not present("dataset.path", path):
                raise UserError(f"{source}: there is no such file")
            try:
                content, ignored = READERS[path.suffix](path)
            except Exception as error:  # parsers of damaged files raise nearly anything
                raise UserError(f"{source}: cannot be read as plain arrays ({one_line(error)})") from None
            part, bad_masks = part_of(content, source)
            parts.append(part)
            others += [*ignored, *bad_masks]
        source = f"dataset.path={shown(Path(str(self.path)))}"
        if others:
            say_once(f"note: {source}: ignored: {', '.join(dict.fromkeys(others))}")
        return self._joined(parts, source)

    def _joined(self, parts: Sequence[Part], source: str) -> Graph:
        """The graph of one part, or of several side by side, each with an owner."""
        declared = {part.num_classes for part in parts}
        kinds = {(part.labels.dtype.kind, *part.labels.shape[1:]) for part in parts}
        widths = {part.features.shape[1] for part in parts}
        if len(widths) > 1 or len(kinds) > 1 or len(declared) > 1:
            raise UserError(f"{source}: the files must agree in the columns of x, the kind of y and num_classes")
        if len(parts) > 1 and any(part.owner is not None for part in parts):
            raise UserError(f"{source}: a file among several has owner; each file is an owner")
        labels, num_classes, names = _encoded(np.concatenate([part.labels for part in parts]), parts[0].num_classes, source)
        masks = {name: np.concatenate([part.masks[name] for part in parts]) for name in GIVEN if all(name in part.masks for part in parts)}
        if len(parts) == 1:
            (part,) = parts
            graph = self.graph(part.features, part.edges[0], part.edges[1], labels, num_classes=num_classes, owner=part.owner)
        else:
            each = np.split(labels, np.cumsum([len(part.labels) for part in parts])[:-1])
            owned = [(part.features, *part.edges, own) for part, own in zip(parts, each, strict=True)]
            graph = side_by_side(self, owned, num_classes)
        ids = np.concatenate([part.ids for part in parts]) if all(part.ids is not None for part in parts) else None
        if not self.standardize:
            note_units(graph.features, source)
        return replace(graph, masks=masks, node_ids=ids, class_names=names)

    def scaled(self, features: Features, root: Path) -> Features:
        if not self.standardize:
            return super().scaled(features, root)
        if self.normalize_features:
            raise UserError("dataset.standardize=true: dataset.normalize_features=true scales the features too; use one of them")
        known, features = (dense(each, self.name) for each in (self.read(root).features, features))
        return ((features - known.mean(0)) / np.where(known.std(0) > 0, known.std(0), 1.0)).astype(np.float32)


def dense(features: Features, name: str) -> np.ndarray:
    """Features ``[N, F]`` in float64, for means and deviations."""
    if sp.issparse(features) and features.shape[1] > MOST_DENSE:
        raise UserError(f"dataset.standardize=true: dataset={name} has {features.shape[1]} columns, mostly zeros, which it would fill")
    return np.asarray(features.todense() if sp.issparse(features) else features, dtype=np.float64)


def note_units(features: Features, source: str) -> None:
    """Say once that columns have different units: such features train badly."""
    if sp.issparse(features) or features.shape[1] > MOST_DENSE:
        return
    spread = features.std(0, dtype=np.float64)
    if spread.max() > UNITS * max(float(np.median(spread)), 1.0):
        text = f"standard deviations of the columns of x range from {spread.min():.3g} to {spread.max():.3g}"
        say_once(f"note: {source}: {text}; dataset.standardize=true scales them")


def part_of(content: dict[str, Any], source: str) -> tuple[Part, list[str]]:
    """The checked content of one file, and its masks that are none."""
    labels = _labels(content, source)
    nodes = len(labels)
    features = _features(content, nodes, source)
    edges = _integers(content, "edge_index", source)
    if edges.ndim != 2 or edges.shape[0] != 2:
        how = "transpose it; " if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise UserError(f"{source}: edge_index has shape {list(edges.shape)}; {how}{LAYOUT}")
    if edges.size and (edges.min() < 0 or edges.max() >= nodes):
        raise UserError(f"{source}: edge_index names a node outside 0..{nodes - 1}")
    declared = None if content.get("num_classes") is None else _class_count(content["num_classes"], nodes, source)
    owner = None if content.get("owner") is None else _owners(content, source)
    if owner is not None and owner.size != nodes:
        raise UserError(f"{source}: owner has {owner.size} entries for {nodes} nodes")
    given = {name: _mask(content, name, nodes, source) for name in GIVEN if content.get(name) is not None}
    bad = [f"{name} (a mask has one true or false for every node)" for name, mask in given.items() if mask is None]
    masks = {name: mask for name, mask in given.items() if mask is not None}
    return Part(features, edges, labels, declared, owner, masks, _ids(content, nodes, source)), bad


def _ids(content: dict[str, Any], nodes: int, source: str) -> np.ndarray | None:
    """Return the names of the nodes as strings, or None."""
    if content.get("id") is None:
        return None
    ids = _plain(content, "id", source)
    if ids.shape != (nodes,) or ids.dtype.kind not in "iuU":
        raise UserError(
            f"{source}: id has shape {list(ids.shape)} of {ids.dtype}; it must hold a string or an integer for each of {nodes} nodes"
        )
    return ids.astype(str)


def _labels(content: dict[str, Any], source: str) -> np.ndarray:
    """y as ``[N]`` int64 or strings, or ``[N, K]`` of 0 and 1."""
    values = plain_labels(_plain(content, "y", source))
    if values.ndim != 2 or 1 in values.shape:
        values = values.reshape(-1)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind == "f":
        broken = values[~((values == np.floor(values)) & (np.abs(values) < 2**53))]
        if broken.size:
            raise UserError(f"{source}: y holds {broken[0]}; a label is an integer (-1 for none) or a string")
    if values.dtype.kind == "U":
        return values
    labels = _integers({"y": values.astype(np.int64) if values.dtype.kind in "bf" else values}, "y", source)
    if labels.ndim == 2 and not np.isin(labels, (0, 1)).all():
        raise UserError(f"{source}: y has shape {list(labels.shape)}; it must be [N], or [N, K] of 0 and 1")
    return labels


def _encoded(labels: np.ndarray, declared: int | None, source: str) -> tuple[np.ndarray, int, tuple[str, ...]]:
    """Labels as numbers from 0 (or ``[N, K]``, several a node), the number of classes, and their names where they have any."""
    if labels.ndim == 2:
        count = labels.shape[1]
        if declared not in (None, count):
            raise UserError(f"{source}: num_classes={declared}: y has {count} columns")
        if (labels.sum(axis=1) == 1).all():
            say_once(f"note: {source}: y [N, {count}] is one-hot; a label is the column of the 1")
            return labels.argmax(axis=1), count, ()
        say_once(f"note: {source}: y [N, {count}] has several labels for a node; its columns are {count} yes-no questions")
        return labels.astype(np.float32), count, ()
    text = labels.dtype.kind == "U"
    known = labels != "" if text else labels >= 0
    kinds = np.unique(labels[known])
    if not text and (declared is not None or labels.min(initial=0) < -1 or np.array_equal(kinds, np.arange(kinds.size))):
        return labels, declared or max(kinds.size, 1), ()
    if declared is not None and declared < kinds.size:
        raise UserError(f"{source}: num_classes={declared}: y has {kinds.size} different labels")
    names = [str(kind)[:40] for kind in kinds[:MOST_NAMED]] + ["..."] * (kinds.size > MOST_NAMED)
    how = "" if text else "; with num_classes they would stay as they are"
    say_once(f"note: {source}: the {kinds.size} labels of y are numbered from 0 in sorted order: {', '.join(names)}{how}")
    return np.where(known, np.searchsorted(kinds, labels), -1), declared or max(kinds.size, 1), tuple(map(str, kinds))


def _mask(content: dict[str, Any], name: str, nodes: int, source: str) -> np.ndarray | None:
    """A mask ``[N]`` or ``[N, K]``; None where it is none, such as a list of node ids."""
    values = _plain(content, name, source)
    if values.ndim not in (1, 2) or values.shape[0] != nodes or not values.size:
        return None
    sound = values.dtype.kind == "b" or (values.dtype.kind in "iu" and np.isin(values, (0, 1)).all())
    return values.astype(bool) if sound else None


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
    """A sparse tensor or scipy matrix as CSR, anything else as an array."""
    return sparse_matrix(value) if hasattr(value, "to_sparse_coo") or sp.issparse(value) else np.asarray(value)


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
