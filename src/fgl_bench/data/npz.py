"""Arrays of ``.npz`` files: whole, or read from the front in blocks. Nothing in them is unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, cast

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.raw import MOST_FEATURES, reading
from fgl_bench.data.storage import blocks

CSR_PARTS = ["data", "indices", "indptr", "shape"]


def array_shapes(file: IO[bytes]) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of an ``.npz`` file, by their headers alone: a small file may unpack to many times its size."""
    shapes = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                shapes[name.removesuffix(".npy")] = _header(member)[0]
    file.seek(0)
    return shapes


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether columns come first, and type."""
    first = np.lib.format.read_magic(member) == (1, 0)
    return (np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0)(member)


def read_arrays(dataset: str, path: Path, keys: list[str]) -> dict[str, np.ndarray]:
    """The named arrays of an ``.npz`` file; refuses pickled content."""
    with reading(dataset, path), path.open("rb") as file:
        most = max((shape[1] for key, shape in array_shapes(file).items() if key in keys and len(shape) == 2), default=0)
        if most > MOST_FEATURES:
            raise ValueError(f"an array has {most} columns; at most {MOST_FEATURES} are allowed")
        with np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in keys}


def read_edge_list(dataset: str, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features, edge rows, edge columns and labels of the npz layout of Platonov et al. (ICLR 2023)."""
    arrays = read_arrays(dataset, path, ["node_features", "node_labels", "edges"])
    with reading(dataset, path):
        row, col = arrays["edges"].T
    return arrays["node_features"], row, col, arrays["node_labels"]


def read_csr_graph(dataset: str, path: Path) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray, np.ndarray]:
    """Features, edge rows, edge columns and labels of the npz layout with ``adj_*`` and ``attr_*`` CSR parts.

    Gives what PyG's ``read_npz`` gives, binarization (``x[x > 0] = 1``) included, without ever making ``x`` dense.
    """
    keys = [f"{matrix}_{part}" for matrix in ("attr", "adj") for part in CSR_PARTS]
    arrays = read_arrays(dataset, path, [*keys, "labels"])
    with reading(dataset, path):
        features = csr(arrays, "attr_").astype(np.float32)
        features.sum_duplicates()
        features.data[features.data > 0] = 1
        links = csr(arrays, "adj_").tocoo()
        labels = arrays["labels"].astype(np.int64)
        if not features.shape[0] == links.shape[0] == links.shape[1] == labels.shape[0]:
            raise ValueError(f"{features.shape[0]} feature rows, {links.shape} adjacency, {labels.shape[0]} labels")
    return features, links.row, links.col, labels


def csr(arrays: dict[str, np.ndarray], prefix: str = "") -> sp.csr_matrix:
    """The checked matrix of the arrays ``<prefix>data`` and so on; raises ValueError."""
    data, indices, indptr, shape = (arrays[f"{prefix}{part}"] for part in CSR_PARTS)
    if any(array.dtype.kind not in "iu" for array in (indices, indptr, shape)):
        raise ValueError("indices, indptr and shape must hold integers")
    matrix = sp.csr_matrix((data, indices, indptr), shape=cast(tuple[int, int], tuple(int(size) for size in shape)))
    matrix.check_format(full_check=True)
    return matrix


class Member:
    """One array of an ``.npz`` archive, read from the front."""

    def __init__(self, path: Path, name: str):
        self._archive = zipfile.ZipFile(path)
        self._file = self._archive.open(f"{name}.npy")
        self.shape, columns_first, self.dtype = _header(self._file)
        if columns_first or self.dtype.hasobject:
            raise ValueError(f"{name} is not a plain array in C order")

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()
        self._archive.close()

    def skip(self, count: int) -> None:
        for part in blocks(count, self.dtype.itemsize):
            self.take(part.stop - part.start)

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` numbers."""
        content = self._file.read(count * self.dtype.itemsize)
        if len(content) != count * self.dtype.itemsize:
            raise ValueError("an array ends early")
        return np.frombuffer(content, self.dtype)
