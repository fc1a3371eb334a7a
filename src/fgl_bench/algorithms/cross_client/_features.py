"""Input features of arbitrary nodes of all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import is_dense
from fgl_bench.engine.sparse import SparseRows
from fgl_bench.engine.transfer import put


def ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Concatenate the ranges from ``start[i]`` of length ``length[i]``."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))


def padded_index(slots: np.ndarray, replicas: int, nodes: int) -> tuple[np.ndarray, int]:
    """Return flat positions of ascending ``slots`` in a table with one row per replica, and the length of a row."""
    replica = slots // nodes
    count = np.bincount(replica, minlength=replicas)
    most = int(count.max(initial=0))
    return replica * most + np.arange(slots.size) - np.repeat(np.cumsum(count) - count, count), most


def distinct(numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``numpy.unique`` of numbers below ``size`` and the inverse, without sorting."""
    occurs = np.zeros(size, dtype=bool)
    occurs[numbers] = True
    values, rank = np.flatnonzero(occurs), np.empty(size, dtype=np.int64)
    rank[values] = np.arange(values.size)
    return values, rank[numbers]


class NodeFeatures:
    """Input features by slot (replica * n + local id).

    Args:
        clients: the graphs of all k replicas.
        slots: host, ascending slots of nodes.
        nodes: n.
    """

    def __init__(self, clients: Sequence[ClientGraph], slots: np.ndarray, nodes: int, dtype: torch.dtype, device: torch.device):
        blocks, self.size, self.nodes = [client.features for client in clients], len(clients), nodes
        self.width, self.dense, self.dtype, self.device = blocks[0].shape[1], is_dense(blocks, device), dtype, device
        self._slots, self._row = slots, np.zeros(self.size * nodes, dtype=np.int64)
        self._row[slots] = np.arange(slots.size)
        if self.dense:
            stacked = np.concatenate([block.toarray() if sp.issparse(block) else np.asarray(block) for block in blocks])
            self._values = torch.from_numpy(stacked).to(device, dtype)
        else:
            self._matrix = sp.vstack([sp.csr_matrix(block) for block in blocks]).tocsr()

    def rows(self, groups: Sequence[tuple[np.ndarray, int]], parts: int) -> Rows:
        """Return the features of groups of slots (each ascending), each for a product with one of the ``parts`` of a weight."""
        laid, sizes = [], []
        for slots, _ in groups:
            padded, c = padded_index(slots, self.size, self.nodes)
            laid.append((slots, padded // max(c, 1), padded % max(c, 1)))
            sizes.append(c)
        of_group, total = [part for _, part in groups], sum(sizes)
        if self.dense:
            index = [np.zeros((self.size, c), dtype=np.int64) for c in sizes]
            for rows, (slots, replica, rank) in zip(index, laid, strict=True):
                rows[replica, rank] = self._row[slots]
            dense = [self._values[put(rows, self.device)] for rows in index]
            return Rows((self.size, total, self.width), sizes, of_group, parts, self.dtype, self.device, dense=dense)
        slot, part = np.full((self.size, total), -1), np.zeros((self.size, total), dtype=np.int32)
        for first, (slots, replica, rank), own in zip(np.cumsum([0, *sizes]), laid, of_group, strict=False):
            slot[replica, first + rank], part[replica, first + rank] = slots, own
        there = slot.ravel() >= 0
        matrix = self._matrix[self._row[slot.ravel()[there]]]
        length = np.zeros(slot.size, dtype=np.int64)
        length[there] = np.diff(matrix.indptr)
        starts, columns = np.concatenate([[0], np.cumsum(length)]), matrix.indices
        if parts > 1:
            columns = columns * np.int32(parts)
            columns += of_group[0] if len(groups) == 1 else np.repeat(part.ravel(), length)
        entries = (starts, columns, matrix.data)
        return Rows((self.size, total, self.width), sizes, of_group, parts, self.dtype, self.device, entries)

    def by_feature(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pairs (replica * F + feature) of sparse features in ``slots``, the start of each pair's slots, and these slots."""
        matrix = self._matrix[self._row[slots]]
        pair = matrix.indices + np.repeat(slots // self.nodes, np.diff(matrix.indptr)) * self.width
        shape = (slots.size, self.size * self.width)
        columns = sp.csr_matrix((np.ones(pair.size, dtype=np.int8), pair, matrix.indptr), shape=shape).tocsc()
        pairs = np.flatnonzero(np.diff(columns.indptr))
        return pairs, columns.indptr[pairs], slots[columns.indices].astype(np.int32)

    def occurring(self, slots: np.ndarray | None = None) -> int:
        """Return the number of pairs of a replica and a sparse feature that occurs in its nodes (among ``slots``)."""
        slots = self._slots if slots is None else slots
        matrix = self._matrix[self._row[slots]]
        seen = np.zeros((self.size, self.width), dtype=bool)
        seen[np.repeat(slots // self.nodes, np.diff(matrix.indptr)), matrix.indices] = True
        return int(np.count_nonzero(seen))


@dataclass(frozen=True)
class Rows:
    """Input features of groups of nodes, each multiplied with one of the concatenated matrices of a weight.

    Attributes:
        shape: (k, c, F), the c rows per replica in order of groups.
        sizes, part: rows per replica and number of the matrix, of every group.
        parts: number of matrices.
        entries: host, sparse features: start of every row's entries ``[k * c + 1]``, their columns (feature * parts + part) and
            values ``[nnz]``; None for dense features.
        dense: dense features ``[k, c, F]`` of every group.
    """

    shape: tuple[int, int, int]
    sizes: list[int]
    part: list[int]
    parts: int
    dtype: torch.dtype
    device: torch.device
    entries: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    dense: list[Tensor] | None = None

    @property
    def sparse(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The entries, which only sparse features have."""
        assert self.entries is not None
        return self.entries

    def products(self, weight: Tensor) -> Sequence[Tensor]:
        """Return the products ``[k, c, h]`` of every group with ``weight [k, F, parts * h]``."""
        if self.dense is not None:
            weights = weight.chunk(self.parts, -1)
            return [torch.bmm(rows, weights[part]) for rows, part in zip(self.dense, self.part, strict=True)]
        k, c, width = self.shape
        matrix = SparseRows(*self.sparse, (k, c, width * self.parts), self.dtype, self.device)
        # As rows of h, the memory layout of the weight, for the sparse product.
        return (matrix @ weight.unflatten(2, (self.parts, -1)).flatten(1, 2)).split(self.sizes, 1)

    @property
    def replica(self) -> np.ndarray:
        """Return the replica of every entry, host ``[nnz]``."""
        k, c, _ = self.shape
        return np.repeat(np.arange(k, dtype=np.int32), np.diff(self.sparse[0][:: c or 1]))
