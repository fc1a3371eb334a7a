"""Message passing over the edges between clients: who holds which remote rows, and what a set of nodes needs to be computed.

Nodes are *slots*: replica * n + local id. A replica sees the edges inside it and those that come in from other replicas of its
seed; for each remote neighbour it keeps one *entry*, a row of a representation that the owner computed. A :class:`Plan` is laid
out on the host from slots alone and never from numbers of the model: which of the edges are used (sampling, rows never received)
is a mask over them, so that nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import is_dense
from fgl_bench.engine.sparse import BlockSparse, Edges, SparseRows
from fgl_bench.errors import Unsuited


@dataclass(frozen=True)
class Level:
    """One convolution: from c sources to r targets a replica.

    Sources are ``own`` rows and, behind them, rows of the store.

    Attributes:
        shape, edges: as a :class:`~fgl_bench.engine.sparse.BlockSparse`'s, for ``engine.attention``.
        own: how many of the c sources are the replica's own.
        entries: ``[k, c - own]`` which entries the others are, 0 in padding.
        held: host, those entries, ascending.
        targets: ``[k, r]`` where each target is among the own sources.
        number: ``[E]`` the edges' numbers in :class:`Halo`.
        entry: ``[E]`` entry that an edge comes from, 0 where it is the replica's own.
        remote, loop: ``[E]`` whether an edge comes from another client; from the node itself.
    """

    shape: tuple[int, int, int]
    edges: Edges
    own: int
    entries: Tensor
    held: np.ndarray
    targets: Tensor
    number: Tensor
    entry: Tensor
    remote: Tensor
    loop: Tensor


@dataclass(frozen=True)
class Plan:
    """How to compute a representation of some slots, ``r`` a replica at most.

    Attributes:
        levels: the convolutions, first one first.
        sources: host, the slots that the first one's sources are.
        slots: host, the slots in ascending order.
        place: host, where each lies in the flattened ``[k * r]`` result.
        valid: ``[k, r]`` bool.
    """

    halo: Halo
    levels: tuple[Level, ...]
    sources: np.ndarray
    slots: np.ndarray
    place: np.ndarray
    valid: Tensor

    @cached_property
    def features(self) -> Rows:
        """The input features of the sources."""
        return self.halo.rows(self.sources)

    @cached_property
    def labels(self) -> Tensor:
        """``[k, r]`` or ``[k, r, Y]``, 0 in padding."""
        index = np.zeros(self.valid.numel(), dtype=np.int64)
        index[self.place] = self.slots
        return self.halo.labels[self.halo.put(index)].unflatten(0, self.valid.shape)


class Halo:
    """The static side of cross-client message passing.

    Args:
        clients: the graphs of all S * C replicas.
        cross_edges: of every seed, ``[2, K]`` global ids in both directions.

    Attributes:
        size, nodes: k and n.
        holder, owner: host ``[R]``, of every entry the replica that keeps it and the slot it is a copy of.
        slots: host ``[T]``, the slots that are nodes.
        kind, target, source, entry: host ``[M]``, of every edge in order of its target: 0 for a loop, 1 inside the client, 2 from
            another one; its ends; the entry that it comes from (0 where it is none).
        start, degree: host ``[k * n]``, the first and the number of edges into every slot.
    """

    def __init__(self, clients: Sequence[ClientGraph], cross_edges: Sequence[np.ndarray], dtype: torch.dtype, device: torch.device):
        self.clients, self.dtype, self.device = clients, dtype, device
        self.size, self.nodes = len(clients), max(client.num_nodes for client in clients)
        count, most = len(clients) // len(cross_edges), self.nodes
        sizes = np.array([client.num_nodes for client in clients])
        first = np.repeat(np.arange(self.size) * most, sizes)
        self.slots = first + np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        inner = np.concatenate([client.edges + i * most for i, client in enumerate(clients)], 1)
        target, source = [self.slots, inner[0]], [self.slots, inner[1]]
        for s, edges in enumerate(cross_edges):
            ends = self._locate(clients[s * count : (s + 1) * count], s * count)[edges]
            target.append(ends[0])
            source.append(ends[1])
        kinds = [np.zeros(self.slots.size), np.ones(inner.shape[1]), np.full(sum(edges.shape[1] for edges in cross_edges), 2)]
        kind, target, source = (np.concatenate(parts).astype(np.int64) for parts in (kinds, target, source))
        order = np.lexsort((source, kind, target))
        self.kind, self.target, self.source = kind[order], target[order], source[order]
        self.degree = np.bincount(self.target, minlength=self.size * most)
        self.start = np.cumsum(self.degree) - self.degree
        self.entry = np.zeros(self.target.size, dtype=np.int64)
        crossing = self.kind == 2
        pairs = self.target[crossing] // most * (self.size * most) + self.source[crossing]
        found, self.entry[crossing] = np.unique(pairs, return_inverse=True)
        self.holder, self.owner = np.divmod(found, self.size * most)
        self._stack_rows()

    def _locate(self, clients: Sequence[ClientGraph], first: int) -> np.ndarray:
        """``[N]`` the slot of every global node id."""
        ids = np.concatenate([client.nodes for client in clients])
        if np.unique(ids).size < ids.size:
            raise Unsuited("needs a split without overlap: clients that exchange embeddings may not share nodes")
        slots = np.full(ids.max(initial=0) + 1, -1, dtype=np.int64)
        slots[ids] = np.concatenate([(first + i) * self.nodes + np.arange(client.num_nodes) for i, client in enumerate(clients)])
        return slots

    def _stack_rows(self) -> None:
        blocks, width = [client.features for client in self.clients], self.clients[0].features.shape[1]
        self.width, self.dense = width, is_dense(blocks, self.device)
        row = np.zeros(self.size * self.nodes, dtype=np.int64)
        row[self.slots] = np.arange(self.slots.size)
        self._row = row
        if self.dense:
            stacked = np.concatenate([block.toarray() if sp.issparse(block) else np.asarray(block) for block in blocks])
            self._values = torch.from_numpy(stacked).to(self.device, self.dtype)
            return
        matrix = sp.vstack([sp.csr_matrix(block) for block in blocks]).tocsr()
        self._pointers, self._columns, self._entries = matrix.indptr.astype(np.int64), matrix.indices, matrix.data

    @cached_property
    def labels(self) -> Tensor:
        """``[k * n]`` or, with several labels a node, ``[k * n, Y]``; 0 in padding."""
        labels = np.concatenate([client.labels for client in self.clients])
        out = np.zeros((self.size * self.nodes, *labels.shape[1:]), dtype=labels.dtype)
        out[self.slots] = np.maximum(labels, 0)
        return torch.from_numpy(out).to(self.device)

    def edges_into(self, slots: np.ndarray) -> np.ndarray:
        """Numbers of the edges into ``slots``, slot after slot."""
        return _ranges(self.start[slots], self.degree[slots])

    def plan(self, slots: np.ndarray, depth: int, taken: Callable[[int, np.ndarray], np.ndarray] | None = None) -> Plan:
        """What is needed to compute the representation of ``slots`` (ascending) after ``depth`` convolutions.

        The first convolution never takes remote rows: what would cross there are raw features.

        Args:
            taken: of a later convolution and numbers of edges, which of them are laid out (bool); None means all.
        """
        levels, targets = [], slots
        for level in reversed(range(depth)):
            number = self.edges_into(targets)
            if level == 0:
                number = number[self.kind[number] < 2]
            elif taken is not None:
                number = number[taken(level, number)]
            made, targets = self._level(targets, number)
            levels.append(made)
        place, r = _places(slots, self.size, self.nodes)
        valid = np.zeros(self.size * r, dtype=bool)
        valid[place] = True
        return Plan(self, tuple(reversed(levels)), targets, slots, place, self.put(valid).view(self.size, r))

    def _level(self, targets: np.ndarray, number: np.ndarray) -> tuple[Level, np.ndarray]:
        """The convolution over these edges into ``targets``, and the slots that it takes."""
        crossing = self.kind[number] == 2
        mine = np.zeros(self.size * self.nodes, dtype=bool)
        mine[self.source[number[~crossing]]] = True
        sources = np.flatnonzero(mine)
        k, n = self.size, self.nodes
        target_place, r = _places(targets, k, n)
        source_place, own = _places(sources, k, n)
        entries, inverse = np.unique(self.entry[number[crossing]], return_inverse=True)
        held = np.bincount(self.holder[entries], minlength=k)
        most = int(held.max(initial=0))
        rank = np.arange(entries.size) - np.repeat(np.cumsum(held) - held, held)
        c = own + most

        where = np.zeros(k * n, dtype=np.int64)
        where[sources] = source_place % max(own, 1)
        into = np.zeros(k * n, dtype=np.int64)
        into[targets] = target_place
        target = into[self.target[number]]
        column = np.empty(number.size, dtype=np.int64)
        column[~crossing] = where[self.source[number[~crossing]]]
        column[crossing] = own + rank[inverse]
        source = target // max(r, 1) * c + column
        table = np.zeros((k, most), dtype=np.int64)
        table[self.holder[entries], rank] = entries
        picks = np.zeros(k * r, dtype=np.int64)
        picks[target_place] = where[targets]
        edges = Edges(
            source=self.put(source),
            target=self.put(target),
            into=self.put(_bounds(target, k * r)),
            order=self.put(np.argsort(source, kind="stable")),
            out_of=self.put(_bounds(source, k * c)),
            bounds=_bounds(target // max(r, 1), k),
        )
        level = Level(
            (k, r, c),
            edges,
            own,
            self.put(table),
            entries,
            self.put(picks).view(k, r),
            self.put(number),
            self.put(self.entry[number]),
            self.put(crossing),
            self.put(self.kind[number] == 0),
        )
        return level, sources

    def rows(self, slots: np.ndarray) -> Rows:
        """The input features of ``slots``."""
        place, c = _places(slots, self.size, self.nodes)
        if self.dense:
            index = np.zeros(self.size * c, dtype=np.int64)
            index[place] = self._row[slots]
            return Rows(dense=self._values[self.put(index)].view(self.size, c, -1))
        return Rows(sparse=SparseRows(*self.entries(slots), (self.size, c, self.width), self.dtype, self.device))

    def entries(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The sparse input features of ``slots``, host: positions in the flattened ``[k * c]`` rows, columns, values."""
        row, (place, _) = self._row[slots], _places(slots, self.size, self.nodes)
        length = np.diff(self._pointers)[row]
        taken = _ranges(self._pointers[row], length)
        return np.repeat(place, length), self._columns[taken], self._entries[taken]

    def occurring(self) -> int:
        """Pairs of a replica and a feature that one of its nodes has, with sparse input features."""
        seen = np.zeros((self.size, self.width), dtype=bool)
        seen[np.repeat(self.slots // self.nodes, np.diff(self._pointers)), self._columns] = True
        return int(np.count_nonzero(seen))

    def put(self, array: np.ndarray) -> Tensor:
        """``array`` on the device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


@dataclass(frozen=True)
class Rows:
    """Input features ``[k, c, F]`` of some nodes, dense or sparse."""

    dense: Tensor | None = None
    sparse: BlockSparse | None = None

    def __matmul__(self, weight: Tensor) -> Tensor:
        return torch.bmm(self.dense, weight) if self.sparse is None else self.sparse @ weight


def _ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """``start[0], start[0] + 1, ...`` for ``length[0]`` numbers, and so on."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))


def _places(slots: np.ndarray, replicas: int, nodes: int) -> tuple[np.ndarray, int]:
    """Where ascending ``slots`` lie when every replica's come first in a row of its own, flattened; and the rows' length."""
    replica = slots // nodes
    count = np.bincount(replica, minlength=replicas)
    most = int(count.max(initial=0))
    return replica * most + np.arange(slots.size) - np.repeat(np.cumsum(count) - count, count), most


def _bounds(index: np.ndarray, groups: int) -> np.ndarray:
    """``[groups + 1]``, where each group's items begin when sorted."""
    return np.concatenate([[0], np.cumsum(np.bincount(index, minlength=groups))])
