"""What a set of nodes needs to be computed: the convolutions from the input features to them, laid out on the host."""

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
    """Edges whose order by source, which only a gradient needs, is found when it is first asked for."""

    def __init__(self, source: Tensor, target: Tensor, into: Tensor, bounds: np.ndarray, columns: int):
        self.source, self.target, self.into, self.bounds, self._columns = source, target, into, bounds, columns
        self._pieces, self._parts, self._bags, self._pairs = {}, {}, {}, {}

    @cached_property
    def order(self) -> Tensor:  # type: ignore[override]  # a cached property can be set, which mypy does not know
        return self.source.argsort(stable=True)

    @cached_property
    def out_of(self) -> Tensor:  # type: ignore[override]  # the same
        if self.source.is_cuda:  # where bincount would wait for the largest value
            return torch.searchsorted(self.source[self.order], torch.arange(self._columns + 1, device=self.source.device))
        return torch.nn.functional.pad(torch.bincount(self.source, minlength=self._columns).cumsum(0), (1, 0))


@dataclass(frozen=True)
class Level:
    """One convolution: from c sources to r targets a replica.

    Sources are ``own`` rows and, behind them, rows of the store.

    Attributes:
        shape, edges: as a :class:`~fgl_bench.engine.sparse.BlockSparse`'s, for ``engine.attention``.
        own: how many of the c sources are the replica's own.
        entries: ``[k, c - own]`` which entries the others are, 0 in padding.
        held: host, those entries, ascending.
        asked: the same, a host tensor.
        bounds: host ``[k + 1]``, where each replica's begin.
        targets: ``[k, r]`` where each target is among the own sources.
        number: ``[E]`` the edges' numbers in the halo.
        entry: ``[E]`` entry that an edge comes from, 0 where it is the replica's own.
        remote, loop: ``[E]`` whether an edge comes from another client; from the node itself.
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
    """The first convolution, of r targets a replica. One without neighbours in it is the product of its own features, without attention.

    Attributes:
        halo: where they are.
        shape: (k, r).
        slots: host, the targets, ascending.
        alone: host, the targets without neighbours, slots in ascending order.
        level: the convolution of all others, None where there are none.
        sources: host, the slots that its sources are.
        pick: ``[k * r]`` where every target is among the alone ``[k * ra]`` and, behind them, the others ``[k * rj]``; None where
            they are the alone ones themselves.
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
        """Of the targets without neighbours, then of the others' sources for every part of the weight."""
        halo = self.halo
        joined = [] if self.level is None else [(self.sources, part) for part in range(halo.parts)]
        return halo.features.rows([(self.alone, halo.part), *joined], halo.parts)


@dataclass(frozen=True)
class Plan:
    """How to compute a representation of some slots, ``r`` a replica at most.

    Attributes:
        first: the first convolution.
        levels: those after it, ``levels[i]`` is number i + 1.
        slots: host, the slots in ascending order.
        place: host, where each lies in the flattened ``[k * r]`` result.
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
        """``[k, r]`` or ``[k, r, Y]``, 0 in padding."""
        index = np.zeros(self.valid.numel(), dtype=np.int64)
        index[self.place] = self.slots
        return self.halo.labels[self.halo.put(index)].unflatten(0, self.valid.shape)


def first_of(halo: Halo, targets: np.ndarray) -> First:
    """The first convolution of these slots (ascending)."""
    number = halo.edges_into(targets)
    number = number[halo.near[number]]
    joined = halo.joined[targets]
    k, n = halo.size, halo.nodes
    place, r = places(targets, k, n)
    alone = targets[~joined]
    if not joined.any():
        return First(halo, (k, r), targets, alone, None, targets[:0], None)
    level, sources = halo.level(targets[joined], number[halo.joined[halo.target[number]]])
    apart, ra = places(alone, k, n)
    among, rj = places(targets[joined], k, n)
    # Padding takes a row of its own replica: a number that is not finite stays where it is.
    replica = np.arange(k * r) // max(r, 1)
    pick = replica * ra if ra else replica * rj
    pick[place[~joined]], pick[place[joined]] = apart, k * ra + among
    return First(halo, (k, r), targets, alone, level, sources, halo.put(pick))
