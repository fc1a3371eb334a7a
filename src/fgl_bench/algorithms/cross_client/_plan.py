"""Plans of computation: the convolutions from input features to a set of nodes, laid out on the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._features import Rows, places
from fgl_bench.engine.sparse import Edges

Halo = Any  # fgl_bench.algorithms.cross_client._halo.Halo, which imports this


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
        place: host, position of each slot in the flattened result ``[k * r]``.
        valid: ``[k, r]`` bool.
    """

    halo: Halo
    first: First
    levels: tuple[Level, ...]
    slots: np.ndarray
    place: np.ndarray
    valid: Tensor

    @cached_property
    def labels(self) -> Tensor:
        """Labels ``[k, r]`` or ``[k, r, Y]``, 0 in padding."""
        index = np.zeros(self.valid.numel(), dtype=np.int64)
        index[self.place] = self.slots
        return self.halo.labels[self.halo.put(index)].unflatten(0, self.valid.shape)


def first_of(halo: Halo, targets: np.ndarray) -> First:
    """Return the first convolution of these slots (ascending)."""
    number = halo.edges_into(targets)
    number = number[halo.near[number]]
    joined = halo.joined[targets]
    k, n = halo.size, halo.nodes
    place, r = places(targets, k, n)
    alone = targets[~joined]
    if not joined.any():
        return First(halo, (k, r), targets, alone, None, targets[:0], None)
    level, sources = halo.level(targets[joined], number[halo.joined[halo.target[number]]])
    alone_place, ra = places(alone, k, n)
    among, rj = places(targets[joined], k, n)
    # Padding repeats a row of its own replica, so that values that are not finite do not spread.
    replica = np.arange(k * r) // max(r, 1)
    pick = replica * ra if ra else replica * rj
    pick[place[~joined]], pick[place[joined]] = alone_place, k * ra + among
    return First(halo, (k, r), targets, alone, level, sources, halo.put(pick))
