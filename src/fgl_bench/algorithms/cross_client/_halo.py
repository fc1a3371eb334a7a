"""Message passing over the edges between clients: ownership of remote rows, and plans of computation.

Nodes are *slots*: replica * n + local id. A replica has the edges inside it and those from other replicas of its seed. For
each remote neighbor it stores one *entry*, a row of a representation computed by the owner. A :class:`Plan` is laid out on the
host and depends only on slots, not on the model: the edges in use (sampling, received rows) are a mask, so the host never waits
for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._features import NodeFeatures, Rows, padded_index, ranges
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.sparse import Edges
from fgl_bench.engine.transfer import put, put_all
from fgl_bench.errors import Unsuited


class Halo:
    """The static structure of cross-client message passing.

    Args:
        clients: the graphs of all S * C replicas.
        cross_edges: edges between clients of every seed, ``[2, K]`` global ids in both directions.
        parts, part: as for the first convolution's weight, see :class:`~fgl_bench.algorithms.cross_client._bipartite.Convolutions`.
        own: slots ``[2, K]`` of the edges that the first convolution uses; None means all edges inside clients.

    Attributes:
        size, nodes: k and n.
        holder, owner: host ``[R]``, the replica that stores an entry, and the slot that the entry copies.
        slots: host ``[T]``, the slots of nodes.
        kind, target, source, entry: host ``[M]``, edges in order of targets: kind 0 for a loop, 1 inside the client, 2 from another
            client; both ends; the entry that the edge comes from (0 if none).
        start, degree: host ``[k * n]``, the first edge into every slot and their number.
        near: host ``[M]`` bool, the edges of the first convolution.
        joined: host ``[k * n]`` bool, the slots with other edges than a loop in the first convolution.
    """

    def __init__(
        self,
        clients: Sequence[ClientGraph],
        cross_edges: Sequence[np.ndarray],
        dtype: torch.dtype,
        device: torch.device,
        parts: int = 1,
        part: int = 0,
        own: np.ndarray | None = None,
    ):
        self.parts, self.part = parts, part
        self.clients, self.dtype, self.device = clients, dtype, device
        self.size, self.nodes = len(clients), max(client.num_nodes for client in clients)
        count, most = len(clients) // len(cross_edges), self.nodes
        sizes = np.array([client.num_nodes for client in clients])
        first = np.repeat(np.arange(self.size) * most, sizes)
        self.slots = first + np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        inner = np.concatenate([client.edges + i * most for i, client in enumerate(clients)], 1)
        targets, sources = [self.slots, inner[0]], [self.slots, inner[1]]
        for s, edges in enumerate(cross_edges):
            ends = self._locate(clients[s * count : (s + 1) * count], s * count)[edges]
            targets.append(ends[0])
            sources.append(ends[1])
        kinds = [np.zeros(self.slots.size), np.ones(inner.shape[1]), np.full(sum(edges.shape[1] for edges in cross_edges), 2)]
        kind, target, source = (np.concatenate(parts).astype(np.int64) for parts in (kinds, targets, sources))
        order = np.lexsort((source, kind, target))
        self.kind, self.target, self.source = kind[order], target[order], source[order]
        self.degree = np.bincount(self.target, minlength=self.size * most)
        self.start = np.cumsum(self.degree) - self.degree
        self.entry = np.zeros(self.target.size, dtype=np.int64)
        crossing = self.kind == 2
        pairs = self.target[crossing] // most * (self.size * most) + self.source[crossing]
        unique, self.entry[crossing] = np.unique(pairs, return_inverse=True)
        self.holder, self.owner = np.divmod(unique, self.size * most)
        self.near = self.kind < 2
        if own is not None:
            pairs = self.target * (self.size * most) + self.source
            self.near = (self.kind == 0) | np.isin(pairs, own[0] * (self.size * most) + own[1])
        self.joined = np.zeros(self.size * most, dtype=bool)
        self.joined[self.target[self.near & (self.kind == 1)]] = True

    def _locate(self, clients: Sequence[ClientGraph], first: int) -> np.ndarray:
        """Return the slot of every global node id, ``[N]``."""
        ids = np.concatenate([client.nodes for client in clients])
        if np.unique(ids).size < ids.size:
            raise Unsuited("needs a split without overlap: clients that exchange embeddings may not share nodes")
        slots = np.full(ids.max(initial=0) + 1, -1, dtype=np.int64)
        slots[ids] = np.concatenate([(first + i) * self.nodes + np.arange(client.num_nodes) for i, client in enumerate(clients)])
        return slots

    @cached_property
    def features(self) -> NodeFeatures:
        """The clients' input features."""
        return NodeFeatures(self.clients, self.slots, self.nodes, self.dtype, self.device)

    @cached_property
    def labels(self) -> Tensor:
        """Labels ``[k * n]`` or, with several labels per node, ``[k * n, Y]``; 0 in padding."""
        labels = np.concatenate([client.labels for client in self.clients])
        out = np.zeros((self.size * self.nodes, *labels.shape[1:]), dtype=labels.dtype)
        out[self.slots] = np.maximum(labels, 0)
        return put(out, self.device)

    def occurring(self) -> int:
        """Return the number of rows of the first convolution's weight in use, over all replicas, for sparse features."""
        # All parts except one are for nodes with neighbors in the first convolution.
        rest = self.features.occurring(np.flatnonzero(self.joined)) if self.parts > 1 else 0
        return self.features.occurring() + (self.parts - 1) * rest

    def edges_into(self, slots: np.ndarray) -> np.ndarray:
        """Return the numbers of the edges into ``slots``, slot by slot."""
        return ranges(self.start[slots], self.degree[slots])

    def plan(self, slots: np.ndarray, depth: int, taken: Callable[[int, np.ndarray], np.ndarray] | None = None) -> Plan:
        """Return the plan to compute the representation of ``slots`` (ascending) after ``depth`` convolutions.

        The first convolution never uses remote rows, which would be raw features.

        Args:
            taken: function from a later convolution's number and edges to the edges to lay out (bool); None means all.
        """
        levels, targets = [], slots
        for number in reversed(range(1, depth)):
            edges = self.edges_into(targets)
            level, targets = self.level(targets, edges if taken is None else edges[taken(number, edges)])
            levels.append(level)
        index, r = padded_index(slots, self.size, self.nodes)
        valid = np.zeros(self.size * r, dtype=bool)
        valid[index] = True
        valid_rows = self.put(valid).view(self.size, r)
        return Plan(self, first_of(self, targets), tuple(reversed(levels)), slots, index, valid_rows)

    def level(self, targets: np.ndarray, number: np.ndarray) -> tuple[Level, np.ndarray]:
        """Return the convolution over these edges into ``targets``, and its source slots."""
        crossing = self.kind[number] == 2
        is_source = np.zeros(self.size * self.nodes, dtype=bool)
        is_source[self.source[number[~crossing]]] = True
        sources = np.flatnonzero(is_source)
        k, n = self.size, self.nodes
        target_index, r = padded_index(targets, k, n)
        source_index, own = padded_index(sources, k, n)
        asked = self.entry[number[crossing]]
        wanted = np.zeros(self.owner.size, dtype=bool)
        wanted[asked] = True
        entries = np.flatnonzero(wanted)
        held = np.bincount(self.holder[entries], minlength=k)
        most = int(held.max(initial=0))
        rank = np.arange(entries.size) - np.repeat(np.cumsum(held) - held, held)
        c = own + most

        where = np.zeros(k * n, dtype=np.int64)
        where[sources] = source_index % max(own, 1)
        row = np.zeros(k * n, dtype=np.int64)
        row[targets] = target_index
        target = row[self.target[number]]
        column = np.empty(number.size, dtype=np.int64)
        column[~crossing] = where[self.source[number[~crossing]]]
        ranked = np.zeros(self.owner.size, dtype=np.int64)
        ranked[entries] = own + rank
        column[crossing] = ranked[asked]
        source = target // max(r, 1) * c + column
        table = np.zeros((k, most), dtype=np.int64)
        table[self.holder[entries], rank] = entries
        picks = np.zeros(k * r, dtype=np.int64)
        picks[target_index] = where[targets]
        into = _bounds(target, k * r)
        here = put_all((source, target, into, table.ravel(), picks, number, self.entry[number], self.kind[number]), self.device)
        kind = here[7]
        level = Level(
            shape=(k, r, c),
            edges=OneWay(here[0], here[1], here[2], into[:: max(r, 1)][: k + 1], k * c),
            own=own,
            entries=here[3].view(k, most),
            held=entries,
            asked=torch.from_numpy(entries),
            bounds=np.concatenate([[0], np.cumsum(held)]),
            targets=here[4].view(k, r),
            number=here[5],
            entry=here[6],
            remote=kind == 2,
            loop=kind == 0,
        )
        return level, sources

    def table(self, slots: np.ndarray) -> Tensor:
        """Return ``slots`` (ascending) by replica, ``[k, c]``; padding repeats one of the replica's slots."""
        index, c = padded_index(slots, self.size, self.nodes)
        table = np.repeat(np.arange(self.size) * self.nodes, c)
        table[index] = slots
        return self.put(table).view(self.size, c)

    def put(self, array: np.ndarray) -> Tensor:
        """Copy ``array`` to the device."""
        return put(np.ascontiguousarray(array), self.device)


def _bounds(index: np.ndarray, groups: int) -> np.ndarray:
    """Return the start of each group's items after sorting, ``[groups + 1]``."""
    return np.concatenate([[0], np.cumsum(np.bincount(index, minlength=groups))])


class OneWay(Edges):
    """Edges with a lazy order by source, which only gradients need."""

    def __init__(self, source: Tensor, target: Tensor, into: Tensor, bounds: np.ndarray, columns: int):
        self.source, self.target, self.into, self.bounds, self._columns = source, target, into, bounds, columns
        self._pieces, self._parts, self._bags, self._pairs = {}, {}, {}, {}

    @cached_property
    def order(self) -> Tensor:  # type: ignore[override]  # a cached property can be set, which mypy does not know
        return self.source.argsort(stable=True)

    @cached_property
    def out_of(self) -> Tensor:  # type: ignore[override]  # the same
        if self.source.is_cuda:  # since bincount would synchronize to find the largest value
            return torch.searchsorted(self.source[self.order], torch.arange(self._columns + 1, device=self.source.device))
        return torch.nn.functional.pad(torch.bincount(self.source, minlength=self._columns).cumsum(0), (1, 0))


@dataclass(frozen=True)
class Level:
    """One convolution from c sources to r targets per replica.

    Sources are ``own`` rows followed by rows of the store.

    Attributes:
        shape, edges: as in :class:`~fgl_bench.engine.sparse.BlockSparse`, for ``engine.attention``.
        own: number of the replica's own sources.
        entries: ``[k, c - own]`` entries of the other sources, 0 in padding.
        held: host, these entries, ascending.
        asked: the same as a host tensor.
        bounds: host ``[k + 1]``, start of each replica's entries.
        targets: ``[k, r]`` position of each target among the own sources.
        number: ``[E]`` number of each edge in the halo.
        entry: ``[E]`` entry that an edge comes from, 0 for own sources.
        remote, loop: ``[E]`` True for edges from another client; from the node itself.
    """

    shape: tuple[int, int, int]
    edges: Edges
    own: int
    entries: Tensor
    held: np.ndarray
    asked: Tensor
    bounds: np.ndarray
    targets: Tensor
    number: Tensor
    entry: Tensor
    remote: Tensor
    loop: Tensor


@dataclass(frozen=True)
class First:
    """The first convolution, of r targets per replica. A target without neighbors is the product of its own features, without attention.

    Attributes:
        halo: the halo of the targets.
        shape: (k, r).
        slots: host, the targets, ascending.
        alone: host, the targets without neighbors, slots in ascending order.
        level: the convolution of all other targets, or None.
        sources: host, the slots of its sources.
        pick: ``[k * r]`` position of every target among the alone ``[k * ra]`` followed by the others ``[k * rj]``; None if all
            targets are alone.
    """

    halo: Halo
    shape: tuple[int, int]
    slots: np.ndarray
    alone: np.ndarray
    level: Level | None
    sources: np.ndarray
    pick: Tensor | None

    @cached_property
    def features(self) -> Rows:
        """Features of the targets without neighbors, then of the others' sources for every part of the weight."""
        halo = self.halo
        joined = [] if self.level is None else [(self.sources, part) for part in range(halo.parts)]
        return halo.features.rows([(self.alone, halo.part), *joined], halo.parts)


@dataclass(frozen=True)
class Plan:
    """A plan to compute a representation of some slots, at most ``r`` per replica.

    Attributes:
        first: the first convolution.
        levels: later convolutions; ``levels[i]`` has number i + 1.
        slots: host, the slots in ascending order.
        index: host, position of each slot in the flattened result ``[k * r]``.
        valid: ``[k, r]`` bool.
    """

    halo: Halo
    first: First
    levels: tuple[Level, ...]
    slots: np.ndarray
    index: np.ndarray
    valid: Tensor

    @cached_property
    def labels(self) -> Tensor:
        """Labels ``[k, r]`` or ``[k, r, Y]``, 0 in padding."""
        slots = np.zeros(self.valid.numel(), dtype=np.int64)
        slots[self.index] = self.slots
        return self.halo.labels[self.halo.put(slots)].unflatten(0, self.valid.shape)


def first_of(halo: Halo, targets: np.ndarray) -> First:
    """Return the first convolution of these slots (ascending)."""
    number = halo.edges_into(targets)
    number = number[halo.near[number]]
    joined = halo.joined[targets]
    k, n = halo.size, halo.nodes
    index, r = padded_index(targets, k, n)
    alone = targets[~joined]
    if not joined.any():
        return First(halo, (k, r), targets, alone, None, targets[:0], None)
    level, sources = halo.level(targets[joined], number[halo.joined[halo.target[number]]])
    alone_index, ra = padded_index(alone, k, n)
    among, rj = padded_index(targets[joined], k, n)
    # Padding repeats a row of its own replica, so that values that are not finite do not spread.
    replica = np.arange(k * r) // max(r, 1)
    pick = replica * ra if ra else replica * rj
    pick[index[~joined]], pick[index[joined]] = alone_index, k * ra + among
    return First(halo, (k, r), targets, alone, level, sources, halo.put(pick))
