"""The input features of any of the nodes of all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import is_dense
from fgl_bench.engine.sparse_rows import SparseRows
from fgl_bench.engine.transfer import put


def ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """``start[0], start[0] + 1, ...`` for ``length[0]`` numbers, and so on."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))


def places(slots: np.ndarray, replicas: int, nodes: int) -> tuple[np.ndarray, int]:
    """Where ascending ``slots`` lie when every replica's come first in a row of its own, flattened; and the rows' length."""
    replica = slots // nodes
    count = np.bincount(replica, minlength=replicas)
    most = int(count.max(initial=0))
    return replica * most + np.arange(slots.size) - np.repeat(np.cumsum(count) - count, count), most


def distinct(numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """``numpy.unique`` of numbers below ``size``, with the inverse, without a sort."""
    there = np.zeros(size, dtype=bool)
    there[numbers] = True
    found, rank = np.flatnonzero(there), np.empty(size, dtype=np.int64)
    rank[found] = np.arange(found.size)
    return found, rank[numbers]


class NodeFeatures:
    """Input features by slot (replica * n + local id).

    Args:
        clients: the graphs of all k replicas.
        slots: host, the slots that are nodes, ascending.
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
        """The features of groups of slots (each ascending), for products with one of the ``parts`` of a weight each."""
        laid, sizes = [], []
        for slots, _ in groups:
            place, c = places(slots, self.size, self.nodes)
            laid.append((slots, place // max(c, 1), place % max(c, 1)))
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
        """Of sparse features, the pairs (replica * F + feature) that ``slots`` have; where the slots with each begin; these slots."""
        matrix = self._matrix[self._row[slots]]
        pair = matrix.indices + np.repeat(slots // self.nodes, np.diff(matrix.indptr)) * self.width
        shape = (slots.size, self.size * self.width)
        columns = sp.csr_matrix((np.ones(pair.size, dtype=np.int8), pair, matrix.indptr), shape=shape).tocsc()
        pairs = np.flatnonzero(np.diff(columns.indptr))
        return pairs, columns.indptr[pairs], slots[columns.indices].astype(np.int32)

    def occurring(self, slots: np.ndarray | None = None) -> int:
        """Pairs of a replica and a feature that one of its nodes (of those among ``slots``) has, with sparse features."""
        slots = self._slots if slots is None else slots
        matrix = self._matrix[self._row[slots]]
        seen = np.zeros((self.size, self.width), dtype=bool)
        seen[np.repeat(slots // self.nodes, np.diff(matrix.indptr)), matrix.indices] = True
        return int(np.count_nonzero(seen))


@dataclass(frozen=True)
class Rows:
    """Input features of groups of nodes. Each is multiplied with one of the matrices that lie side by side in a weight.

    Attributes:
        shape: (k, c, F), the c rows of a replica group by group.
        sizes, part: of every group its rows a replica and the number of its matrix.
        parts: how many matrices there are.
        entries: host, sparse features: where the entries of every row begin ``[k * c + 1]``, their columns (feature * parts + part)
            and values ``[nnz]``; None where features are dense.
        dense: of every group ``[k, c, F]``.
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
        """``[k, c, h]`` of every group from the weight ``[k, F, parts * h]``."""
        if self.dense is not None:
            weights = weight.chunk(self.parts, -1)
            return [torch.bmm(rows, weights[part]) for rows, part in zip(self.dense, self.part, strict=True)]
        k, c, width = self.shape
        matrix = SparseRows(*self.sparse, (k, c, width * self.parts), self.dtype, self.device)
        # As rows of h: a sparse product wants the weight as it lies in memory.
        return (matrix @ weight.unflatten(2, (self.parts, -1)).flatten(1, 2)).split(self.sizes, 1)

    @property
    def replica(self) -> np.ndarray:
        """Host ``[nnz]``, the replica of every entry."""
        k, c, _ = self.shape
        return np.repeat(np.arange(k, dtype=np.int32), np.diff(self.sparse[0][:: c or 1]))
