"""Cora, CiteSeer and PubMed (Yang et al., ICML 2016) from Planetoid's raw files, in PyG's layout."""

from __future__ import annotations

import io
import math
import pickle
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.checks import check_choice
from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.masks import GIVEN
from fgl_bench.data.raw import reading

FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")

VALIDATION = 500
"""Nodes of the public validation mask; they follow the training nodes."""


@dataclass
class Planetoid(Dataset):
    """The graph of PyG's ``Planetoid``: raw features, no normalization; its masks are the public ones (``split.masks=given``)."""

    def files(self, root: Path) -> dict[str, Path]:
        check_choice("dataset.name", self.name, FOLDERS)
        return below(root, *(f"{FOLDERS[self.name]}/raw/ind.{self.name}.{part}" for part in PARTS))

    def address(self, file: str) -> str:
        return f"https://github.com/kimiyoung/planetoid/raw/master/data/{Path(file).name}"

    def read(self, root: Path) -> Graph:
        paths = dict(zip(PARTS, self.raw(root), strict=True))
        tx, allx = (read_pickle(self.name, paths[part], sp.csr_matrix) for part in ("tx", "allx"))
        y, ty, ally = (read_pickle(self.name, paths[part], np.ndarray) for part in ("y", "ty", "ally"))
        links = read_pickle(self.name, paths["graph"], dict)
        with reading(self.name, paths["test.index"]):
            test = np.array(paths["test.index"].read_text().split(), dtype=np.int64)
            if not test.size or test.min() < 0 or test.max() >= len(links):
                raise ValueError(f"it must hold ids of test nodes, from 0 to {len(links) - 1}")
            if np.unique(test).size < test.size:
                raise ValueError("an id stands there twice")
        with reading(self.name, paths["graph"].parent):
            start, nodes, classes = int(test.min()), len(links), ally.shape[-1]
            sizes = (allx.shape[0], tx.shape, ally.shape, ty.shape)
            if sizes != (start, (test.size, allx.shape[1]), (start, classes), (test.size, classes)):
                raise ValueError("the ind.* files do not fit together")
            # Test rows go where test.index says; ids that it skips (CiteSeer's isolated nodes) stay zero.
            order = sp.csr_matrix((np.ones(test.size, dtype=np.float32), (test - start, np.arange(test.size))), (nodes - start, test.size))
            features = sp.vstack([allx.astype(np.float32), order @ tx.astype(np.float32)], format="csr")
            labels = np.zeros(nodes, dtype=np.int64)
            labels[:start] = ally.argmax(axis=1)
            labels[test] = ty.argmax(axis=1)
            row = np.repeat(np.fromiter(links, dtype=np.int64), [len(ends) for ends in links.values()])
            col = np.concatenate([np.asarray(ends, dtype=np.int64) for ends in links.values()])
            graph = self.graph(features, row, col, labels, num_classes=classes)
            ids = np.arange(nodes)
            public = (ids < len(y), (ids >= len(y)) & (ids < len(y) + VALIDATION), np.isin(ids, test))
            return replace(graph, masks=dict(zip(GIVEN, public, strict=True)))


Kind = TypeVar("Kind", np.ndarray, sp.csr_matrix, dict)

NUMERIC = re.compile(r"[biuf][1248]")
"""Types of array elements, as numpy abbreviates them: booleans, integers and floating-point numbers."""


def read_pickle(dataset: str, path: Path, kind: type[Kind]) -> Kind:
    """Read a pickle of Python 2 or 3: a numeric array, a CSR matrix, or neighbor lists (dict of int to list of int).

    Args:
        dataset: name for messages.
        path: the file.
        kind: what must be in it.

    Raises:
        UserError: the file is damaged, holds something else, or names a class that is not allowed.
    """
    with reading(dataset, path):
        # The unpickler written in Python: the one in C allocates its memo by the largest index in the file, sound or not.
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        if isinstance(content, _Pickled):
            content = content.value()
        if not isinstance(content, kind):
            raise ValueError(f"it holds no {kind.__name__}")
        if isinstance(content, dict) and not _neighbor_lists(content):
            raise ValueError("it holds something else than lists of node ids")
        return content


def _neighbor_lists(content: dict[Any, Any]) -> bool:
    lists = content.values()
    return {*map(type, lists)} <= {list} and {*map(type, chain(content, *lists))} <= {int}  # thousands of ids: no loop in Python


class _Pickled:
    """Notes what a pickle says of an object; :meth:`value` checks it and makes the real one.

    numpy and scipy never see the state: their own ``__setstate__`` would take raw bytes for object pointers.
    """

    __slots__ = ("given", "state")

    def __init__(self, *given: Any):
        self.given = given
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def value(self) -> Any:
        raise NotImplementedError  # abstract


class _Type(_Pickled):
    __slots__ = ()

    def value(self) -> np.dtype:
        name = _text(self.given[0])
        if not NUMERIC.fullmatch(name):
            raise ValueError(f"an array of {name[:20]} is not numeric")
        # The state: version, byte order, then what plain numbers have not: subtype, names, fields, size, alignment, flags.
        order = "|" if self.state is None else _text(self.state[1])
        if order not in ("<", ">", "|"):
            raise ValueError("an array has no byte order")
        return np.dtype(name).newbyteorder(cast(Literal["<", ">", "|"], order))


class _Array(_Pickled):
    __slots__ = ()

    def value(self) -> np.ndarray:
        _, shape, kind, columns_first, content = self.state
        if not isinstance(kind, _Type) or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("an array has no numeric type or no shape")
        raw, dtype = content.encode("latin1") if isinstance(content, str) else bytes(content), kind.value()
        if len(raw) != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"an array of shape {list(shape)} has {len(raw)} bytes")
        array = np.frombuffer(raw, dtype).reshape(shape, order="F" if columns_first else "C")
        return array.astype(dtype.newbyteorder("="))


class _Matrix(_Pickled):
    __slots__ = ()

    def value(self) -> sp.csr_matrix:
        arrays = [self.state[part] for part in ("data", "indices", "indptr")]
        if not all(isinstance(array, _Array) for array in arrays):
            raise ValueError("a CSR matrix without numeric arrays")
        rows, columns = self.state["_shape"]
        matrix = sp.csr_matrix(tuple(array.value() for array in arrays), shape=(rows, columns))
        matrix.check_format(full_check=True)
        return matrix


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"scipy.sparse{name}", "csr_matrix"): _Matrix for name in ("", ".csr", "._csr")},
}


class _Unpickler(pickle._Unpickler):
    # A bytearray would be filled with as many zeros as the file says, before a byte of it is read.
    dispatch = {code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data file")
