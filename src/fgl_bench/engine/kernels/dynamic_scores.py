"""The scores of GATv2, by PyTorch's operations for a block of targets at a time, or edge by edge in a compiled loop.

Scores are ``[H, E]``, head by head, edges in the order of :attr:`BlockSparse.edges`. No large tensor of E rows times the width of a
representation is stored: what scores are made of is computed again in backward. Every sum is taken target by target or source by source,
in a fixed order that does not depend on which replicas share a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.attention import Bipartite, row_sums
from fgl_bench.engine.kernels.compiled import compiles
from fgl_bench.engine.sparse import Edges

BLOCK = {"cpu": 1 << 18, "cuda": 1 << 26}  # numbers of a block of edge rows; on a CPU they stay in the cache
KEPT = {"cpu": 1 << 23, "cuda": 1 << 26}  # up to this size, values along the edges are stored until they are summed by source


def dynamic_scores(graph: Bipartite, source: Tensor, target: Tensor, weight: Tensor, slope: float) -> Tensor:
    """``a . LeakyReLU(source_u + target_v)`` of every edge (GATv2; Brody, Alon & Yahav, ICLR 2022, eq. 7).

    Args:
        source, target: ``[k, c, H * d]`` and ``[k, r, H * d]``.
        weight: a, ``[k, H, d]``.

    Returns:
        ``[H, E]``.
    """
    if compiles(source):
        from fgl_bench.engine.kernels.dynamic_scores_loops import DynamicScores

        return DynamicScores.apply(source.flatten(0, 1), target.flatten(0, 1), weight, graph.edges, slope)
    return _Dynamic.apply(source.flatten(0, 1), target.flatten(0, 1), weight, graph.edges, slope)


class _Dynamic(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, weight: Tensor, edges: Edges, slope: float) -> Tensor:
        ctx.edges, ctx.slope, (k, heads, _) = edges, slope, weight.shape
        ctx.save_for_backward(source, target, weight)
        flat, per, scores = weight.flatten(1), target.shape[0] // k, source.new_empty(edges.source.numel(), heads)
        ends = torch.cat([source, target])
        for part, nodes in edges.pieces(False, _at_once(source.device, target.shape[1])):
            rows = F.leaky_relu(_pair_sums(ends, edges.pairs(False), part), slope, inplace=True)
            rows.mul_(_of_replicas(flat, edges.target, part, nodes, per))
            scores[part] = rows.unflatten(1, (heads, -1)).sum(-1)
        return scores.mT.contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        source, target, weight = ctx.saved_tensors
        edges, (k, heads, _), width = ctx.edges, weight.shape, target.shape[1]
        flat, per, gradient = weight.flatten(1), target.shape[0] // k, gradient.mT
        to_source, to_target, to_weight = torch.zeros_like(source), torch.zeros_like(target), torch.zeros_like(target)
        most, ends = _at_once(source.device, width), torch.cat([source, target])

        moved = gradient.ne(0)
        count = row_sums(moved.to(gradient.dtype), edges.into)[..., None]

        def slopes(positive: Tensor, each: Tensor) -> Tensor:
            # Computed from the comparison: on a CPU, selecting by a random mask takes ten times as long.
            slope = positive.mul(1 - ctx.slope).add_(ctx.slope)
            slope.unflatten(1, (heads, -1)).mul_(each[..., None])
            return slope

        flows = source.new_empty(edges.source.numel(), width) if edges.source.numel() <= _at_once(source.device, width, KEPT) else None
        for part, nodes in edges.pieces(False, most):
            total = _pair_sums(ends, edges.pairs(False), part)
            positive = _positive(total)
            slope = slopes(positive, gradient[part])
            starts = edges.into[nodes.start : nodes.stop + 1] - part.start
            positive.unflatten(1, (heads, -1)).mul_(moved[part, :, None])
            above = row_sums(positive, starts).unflatten(1, (heads, -1))
            to_weight[nodes] = row_sums(total.mul_(slope), starts)
            flow = torch.mul(slope, _of_replicas(flat, edges.target, part, nodes, per), out=slope if flows is None else flows[part])
            rows = row_sums(flow, starts)
            to_target[nodes] = rows.mul_((above.gt(0) & above.lt(count[nodes])).flatten(1))
        if flows is not None:
            if len(flows):
                to_source = F.embedding_bag(edges.order, flows, edges.out_of, mode="sum", include_last_offset=True)
            return to_source, to_target, to_weight.view(k, per, width).sum(1).view_as(weight), None, None
        sources = edges.source.index_select(0, edges.order)
        for part, nodes in edges.pieces(True, most):
            slope = slopes(_positive(_pair_sums(ends, edges.pairs(True), part)), gradient.index_select(0, edges.order[part]))
            slope.mul_(_of_replicas(flat, sources, part, nodes, source.shape[0] // k))
            to_source[nodes] = row_sums(slope, edges.out_of[nodes.start : nodes.stop + 1] - part.start)
        return to_source, to_target, to_weight.view(k, per, width).sum(1).view_as(weight), None, None


def _pair_sums(ends: Tensor, pairs: tuple[Tensor, Tensor], part: slice) -> Tensor:
    """Source plus target of the edges in ``part``, ``[E', h]``, from the rows ``ends`` of both, in one pass."""
    index, starts = pairs
    index, starts = index[2 * part.start : 2 * part.stop], starts[: part.stop - part.start + 1]
    return F.embedding_bag(index, ends, starts, mode="sum", include_last_offset=True)


def _of_replicas(rows: Tensor, ends: Tensor, part: slice, nodes: slice, per: int) -> Tensor:
    """The row of ``rows [k, h]`` for each edge's replica; a single row, not repeated, if all edges of ``part`` lie in one replica.

    Args:
        ends: ``[E]`` targets (or sources), with ``per`` of them a replica.
        nodes: those that ``part`` goes into (or out of).
    """
    first, last = nodes.start // per, (nodes.stop - 1) // per
    return rows[first] if first == last else rows.index_select(0, ends[part] // per)


def _positive(x: Tensor) -> Tensor:
    """1 where ``x`` is positive, else 0, in its type."""
    return torch.gt(x, 0, out=torch.empty_like(x))


def _at_once(device: torch.device, width: int, numbers: Mapping[str, int] = BLOCK) -> int:
    return max(1, numbers.get(device.type, 1 << 26) // width)
