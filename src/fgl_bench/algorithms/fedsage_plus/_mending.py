"""Clients' graphs with generated neighbors that depend on FedSage+'s generators in training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from fgl_bench.algorithms._limited import Limited
from fgl_bench.algorithms.fedsage_plus._mended import scattered
from fgl_bench.engine.batch import Batch, InputFeatures, Operator, adjacency, gcn_operator, mean_operator, plain_operator
from fgl_bench.models.graphsage import Convolved


class Generated(NamedTuple):
    """Generated neighbors of some nodes, slot by slot.

    Attributes:
        features: ``[k, m_j, F]`` for every slot j in use, of the first m_j of ``nodes``.
        nodes: ``[k, m]``, distinct nodes in descending order of their slots.
        count: ``[k, m]``, number of slots per node.
    """

    features: list[Tensor]
    nodes: Tensor
    count: Tensor  # type: ignore[assignment]  # it hides tuple.count

    def slots(self, most: int) -> Tensor:
        """Return positions ``[k, sum of m_j]`` among the ``most`` slots of all nodes."""
        return torch.cat([self.nodes[:, : rows.shape[1]] * most + place for place, rows in enumerate(self.features)], 1)

    def products(self, weight: Tensor) -> Tensor:
        """Return the features times ``weight [k, F, h]``, ``[k, sum of m_j, h]``."""
        return torch.cat([torch.bmm(rows, weight) for rows in self.features], 1)

    def sums(self) -> Tensor:
        """Return the sum of each node's generated neighbors, ``[k, m_0, F]``."""
        return _Summed.apply(self.count, *self.features)


class _Summed(torch.autograd.Function):
    """The sum of blocks ``[k, m_j, F]``, j = 0, 1, ..., over the rows with more than j slots."""

    @staticmethod
    def forward(ctx: Any, count: Tensor, *blocks: Tensor) -> Tensor:
        ctx.has = [(count[:, : block.shape[1], None] > j).to(block.dtype) for j, block in enumerate(blocks)]
        total = blocks[0] * ctx.has[0]
        for block, has in zip(blocks[1:], ctx.has[1:], strict=True):
            total[:, : block.shape[1]].addcmul_(block, has)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(gradient[:, : has.shape[1]] * has for has in ctx.has)


class _Interleaved(Convolved):
    """Features of every real node followed by those of its P slots; zero for unused slots.

    Args:
        whole: generated neighbors with their own output.
        near: generated neighbors that only contribute to means, or None.
    """

    def __init__(self, real: InputFeatures, whole: Generated, near: Generated | None, most: int):
        self.real, self.whole, self.near, self.most = real, whole, near, most
        self.slots = whole.slots(most)

    def __matmul__(self, weight: Tensor) -> Tensor:
        assert self.near is None
        real = self.real @ weight
        return _interleaved(real, self._own(weight, real.shape[1]))

    def _own(self, weight: Tensor, nodes: int) -> Tensor:
        """Return the products of the slots, ``[k, n, P, h]``."""
        return scattered(self.whole.products(weight), self.slots, nodes * self.most).unflatten(1, (-1, self.most))

    def convolved(self, batch: Batch, weight: Tensor) -> Tensor:
        """As :class:`Convolved`; the sum over a node's slots is multiplied once, and only used slots are computed.

        Args:
            batch: the :class:`AugmentedGraph` with these features.
        """
        (near, own), graph = weight.chunk(2, -1), cast(AugmentedGraph, batch)
        real_near, real_own = (self.real @ weight).chunk(2, -1)
        n = real_near.shape[1]
        sums = graph.batch.operator(adjacency) @ real_near
        for part in (self.whole, self.near):
            if part is not None:
                summed = part.sums()
                sums = sums + scattered(torch.bmm(summed, near), part.nodes[:, : summed.shape[1]], n)
        real = sums / graph.degree.unflatten(1, (n, -1))[:, :, :1].clamp(min=1) + real_own
        return _interleaved(real, real_near[:, :, None] * graph.slots[..., None] + self._own(own, n))


def _interleaved(real: Tensor, places: Tensor) -> Tensor:
    """Interleave ``[k, n, h]`` and ``[k, n, P, h]`` to ``[k, n (1 + P), h]``."""
    return torch.cat([real[:, :, None], places], 2).flatten(1, 2)


class _Limited(Limited):
    refusal = "cannot train this backbone on augmented graphs, which have no {name}"


class AugmentedGraph(_Limited):
    """Impaired graphs with generated neighbors, as input of a backbone instead of a batch; differentiable in the features.

    Nodes: every real node followed by its P slots, ``n (1 + P)`` in total (so that dropout does not depend on padding). A slot in
    use is joined with its node in both directions.

    Args:
        slots: ``[k, n, P]`` bool, slots in use.
        whole, near: the generated neighbors with their own output, and those that only contribute to means; see
            :func:`~fgl_bench.algorithms.fedsage_plus._mended.seen`.
    """

    def __init__(self, batch: Batch, slots: Tensor, whole: Generated, near: Generated | None = None):
        self.batch, self.slots = batch, slots.to(batch.dtype)
        self.features = _Interleaved(batch.features, whole, near, slots.shape[2])
        degree = (batch.degree + self.slots.sum(-1))[..., None]
        self.degree = torch.cat([degree, self.slots], 2).flatten(1, 2)
        self.valid = torch.cat([batch.valid[..., None], slots], 2).flatten(1, 2)

    def real(self, x: Tensor) -> Tensor:
        """Return the real nodes' rows, ``[k, n (1 + P), h]`` to ``[k, n, h]``."""
        return x.unflatten(1, (self.batch.nodes, -1))[:, :, 0]

    def neighbors(self, x: Tensor) -> Tensor:
        """Sum over neighbors, ``[k, n (1 + P), h]`` to the same shape."""
        slots, made, real = self.slots[..., None], x.unflatten(1, (self.batch.nodes, -1))[:, :, 1:], self.real(x)
        near = self.batch.operator(adjacency) @ real + (made * slots).sum(2)
        return torch.cat([near[:, :, None], real[:, :, None] * slots], 2).flatten(1, 2)

    def operator(self, build: Operator) -> _Operator:
        if build not in OPERATORS:
            self.__getattr__(build.__name__)
        return _Operator(self, OPERATORS[build])


@dataclass
class _Operator(_Limited):
    graph: AugmentedGraph
    apply: Callable[[AugmentedGraph, Tensor], Tensor]

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.apply(self.graph, x)


def _mean(graph: AugmentedGraph, x: Tensor) -> Tensor:
    return graph.neighbors(x) / graph.degree.clamp(min=1)[..., None]


def _symmetric(graph: AugmentedGraph, x: Tensor) -> Tensor:
    scale = (graph.degree + 1).rsqrt()[..., None]
    return scale * (graph.neighbors(scale * x) + scale * x)


def _without_loops(graph: AugmentedGraph, x: Tensor) -> Tensor:
    scale = torch.where(graph.degree > 0, graph.degree.clamp(min=1).rsqrt(), 0.0)[..., None]
    return scale * graph.neighbors(scale * x)


OPERATORS = {mean_operator: _mean, gcn_operator: _symmetric, plain_operator: _without_loops, adjacency: AugmentedGraph.neighbors}
