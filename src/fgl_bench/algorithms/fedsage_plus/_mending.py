"""Graphs of clients with generated neighbours that still move, while FedSage+'s generators are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from fgl_bench.algorithms._limited import Limited
from fgl_bench.algorithms.fedsage_plus._mended import placed
from fgl_bench.engine.batch import Batch, InputFeatures, Operator, adjacency, gcn_operator, mean_operator, plain_operator
from fgl_bench.models.graphsage import Convolved


class Generated(NamedTuple):
    """Generated neighbours of some nodes, place by place.

    Attributes:
        features: ``[k, m_j, F]`` for every place j that is used, of the first m_j of ``nodes``.
        nodes: ``[k, m]``, different ones, those with the most places first.
        count: ``[k, m]``, how many places each of them has.
    """

    features: list[Tensor]
    nodes: Tensor
    count: Tensor  # type: ignore[assignment]  # it hides tuple.count

    def slots(self, most: int) -> Tensor:
        """``[k, sum of m_j]`` positions among the ``most`` places of all nodes."""
        return torch.cat([self.nodes[:, : rows.shape[1]] * most + place for place, rows in enumerate(self.features)], 1)

    def products(self, weight: Tensor) -> Tensor:
        """``[k, sum of m_j, h]``, the features times ``weight [k, F, h]``."""
        return torch.cat([torch.bmm(rows, weight) for rows in self.features], 1)

    def sums(self) -> Tensor:
        """``[k, m_0, F]``, the sum of each node's generated neighbours."""
        return _Summed.apply(self.count, *self.features)


class _Summed(torch.autograd.Function):
    """The sum of blocks ``[k, m_j, F]``, j = 0, 1, ..., over the rows that have more than j."""

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
    """Every real node's features and those of its P places in turn; of places, and nodes, that have none they are zero.

    Args:
        whole: generated neighbours with an output of their own.
        near: those of other nodes, which count in these nodes' means alone; None if there are none.
    """

    def __init__(self, real: InputFeatures, whole: Generated, near: Generated | None, most: int):
        self.real, self.whole, self.near, self.most = real, whole, near, most
        self.slots = whole.slots(most)

    def __matmul__(self, weight: Tensor) -> Tensor:
        assert self.near is None
        real = self.real @ weight
        return _interleaved(real, self._own(weight, real.shape[1]))

    def _own(self, weight: Tensor, nodes: int) -> Tensor:
        """``[k, n, P, h]``, the products of the places."""
        return placed(self.whole.products(weight), self.slots, nodes * self.most).unflatten(1, (-1, self.most))

    def convolved(self, batch: Batch, weight: Tensor) -> Tensor:
        """As :class:`Convolved`; the sum over a node's places is multiplied once, and places are no more than asked for.

        Args:
            batch: the :class:`MendedGraph` that holds these features.
        """
        (near, own), graph = weight.chunk(2, -1), cast(MendedGraph, batch)
        real_near, real_own = (self.real @ weight).chunk(2, -1)
        n = real_near.shape[1]
        sums = graph.batch.operator(adjacency) @ real_near
        for part in (self.whole, self.near):
            if part is not None:
                summed = part.sums()
                sums = sums + placed(torch.bmm(summed, near), part.nodes[:, : summed.shape[1]], n)
        real = sums / graph.degree.unflatten(1, (n, -1))[:, :, :1].clamp(min=1) + real_own
        return _interleaved(real, real_near[:, :, None] * graph.slots[..., None] + self._own(own, n))


def _interleaved(real: Tensor, places: Tensor) -> Tensor:
    """``[k, n, h]`` and ``[k, n, P, h]`` as ``[k, n (1 + P), h]``."""
    return torch.cat([real[:, :, None], places], 2).flatten(1, 2)


class _Limited(Limited):
    refusal = "cannot train this backbone on graphs being mended, which have no {name}"


class MendedGraph(_Limited):
    """Impaired graphs with generated neighbours that still move, for a backbone in place of a Batch; differentiable in the features.

    Nodes: every real one followed by its P places, ``n (1 + P)`` in all (so that the draws of a dropout do not depend on
    padding); a place is joined with its node, in both directions, where ``slots`` says so.

    Args:
        slots: ``[k, n, P]`` bool.
        whole, near: the generated neighbours with an output of their own, and those that count in their nodes' means alone; see
            :func:`~fgl_bench.algorithms.fedsage_plus._mended.seen`.
    """

    def __init__(self, batch: Batch, slots: Tensor, whole: Generated, near: Generated | None = None):
        self.batch, self.slots = batch, slots.to(batch.dtype)
        self.features = _Interleaved(batch.features, whole, near, slots.shape[2])
        degree = (batch.degree + self.slots.sum(-1))[..., None]
        self.degree = torch.cat([degree, self.slots], 2).flatten(1, 2)
        self.valid = torch.cat([batch.valid[..., None], slots], 2).flatten(1, 2)

    def real(self, x: Tensor) -> Tensor:
        """The real nodes' rows, ``[k, n (1 + P), h]`` to ``[k, n, h]``."""
        return x.unflatten(1, (self.batch.nodes, -1))[:, :, 0]

    def neighbours(self, x: Tensor) -> Tensor:
        """The sum over the neighbours, ``[k, n (1 + P), h]`` to the same."""
        slots, made, real = self.slots[..., None], x.unflatten(1, (self.batch.nodes, -1))[:, :, 1:], self.real(x)
        near = self.batch.operator(adjacency) @ real + (made * slots).sum(2)
        return torch.cat([near[:, :, None], real[:, :, None] * slots], 2).flatten(1, 2)

    def operator(self, build: Operator) -> _Operator:
        if build not in OPERATORS:
            self.__getattr__(build.__name__)
        return _Operator(self, OPERATORS[build])


@dataclass
class _Operator(_Limited):
    graph: MendedGraph
    apply: Callable[[MendedGraph, Tensor], Tensor]

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.apply(self.graph, x)


def _mean(graph: MendedGraph, x: Tensor) -> Tensor:
    return graph.neighbours(x) / graph.degree.clamp(min=1)[..., None]


def _symmetric(graph: MendedGraph, x: Tensor) -> Tensor:
    scale = (graph.degree + 1).rsqrt()[..., None]
    return scale * (graph.neighbours(scale * x) + scale * x)


def _without_loops(graph: MendedGraph, x: Tensor) -> Tensor:
    scale = torch.where(graph.degree > 0, graph.degree.clamp(min=1).rsqrt(), 0.0)[..., None]
    return scale * graph.neighbours(scale * x)


OPERATORS = {mean_operator: _mean, gcn_operator: _symmetric, plain_operator: _without_loops, adjacency: MendedGraph.neighbours}
