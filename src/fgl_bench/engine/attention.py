"""Attention over the edges of all replicas: scores per edge, a softmax over every target's edges, the weighted sum of sources.

Edges are the entries of a :class:`~fgl_bench.engine.sparse.BlockSparse` of r targets and c sources a replica (a square one for
message passing inside a graph, any other for bipartite graphs); its values do not matter. Scores are ``[H, E]``, head
by head, edges in the order of :attr:`BlockSparse.edges`. A target without edges, such as padding, gets zeros.

The softmax of :func:`attend` removes the common part of all scores of a target: the whole score of a single edge, and the
target's part if the LeakyReLU has the same slope at all of its edges. These gradients are exactly zero, because Adam would turn a
rounding error into a step.

No large tensor of E rows times the width of a representation is stored: sums over edges are bag reductions in both
directions. Every sum is taken target by target or source by source, in a fixed order that does not depend on which replicas share a
program. The scores of GATv2, which need such rows, are in :mod:`fgl_bench.engine.kernels.dynamic_scores`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.sparse import BlockSparse, Edges


class Bipartite(Protocol):
    """Edges from c sources to r targets a replica; ``shape`` is (k, r, c)."""

    @property
    def shape(self) -> tuple[int, int, int]: ...

    @property
    def edges(self) -> Edges: ...


def additive_scores(graph: Bipartite, source: Tensor, target: Tensor, slope: float) -> Tensor:
    """``LeakyReLU(source_u + target_v)`` of every edge (Veličković et al., ICLR 2018, eq. 3).

    Args:
        source, target: ``[k, c, H]`` and ``[k, r, H]``.
        slope: of the LeakyReLU below zero.

    Returns:
        ``[H, E]``.
    """
    return _Additive.apply(_head_major(source), _head_major(target), graph.edges, slope)


def attend(graph: Bipartite, values: Tensor, scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """The sum over every target's edges of softmax(scores) times the sources' values.

    Args:
        values: ``[k, c, H * d]``.
        scores: ``[H, E]``.
        keep: ``[H, E]`` factors of the attention (dropout's zeros and scale), after the softmax.

    Returns:
        ``[k, r, H * d]``.
    """
    k, r, _ = graph.shape
    return _Attend.apply(values.flatten(0, 1), scores, keep, graph.edges, k * r).view(k, r, -1)


def per_edge(graph: BlockSparse, heads: int, dropout: Callable[[Tensor], Tensor]) -> Tensor:
    """Dropout factors ``[H, E]``: ``dropout`` on ones; an edge's draw depends on its place within its replica only."""
    edges, (k, r, _) = graph.edges, graph.shape
    most = int(np.diff(edges.bounds).max(initial=0))
    starts = torch.arange(k, device=edges.target.device) * most - edges.into[:-1:r]
    ones = torch.ones(k, most, heads, device=graph.bags.values.device, dtype=graph.bags.values.dtype)
    index = torch.arange(edges.target.numel(), device=edges.target.device) + starts[edges.target // r]
    return dropout(ones).flatten(0, 1).index_select(0, index).mT.contiguous()


def softmax(scores: Tensor, edges: Edges, targets: int) -> Tensor:
    """Softmax of ``[H, E]`` over the edges into each target; outside autograd."""
    heads = len(scores)
    index = edges.target.expand(heads, -1)
    largest = scores.new_full((heads, targets), -torch.inf).scatter_reduce_(1, index, scores, "amax")
    power = torch.exp(scores - largest.index_select(1, edges.target))
    return power / _sums(power, edges.into).index_select(1, edges.target)


def _head_major(x: Tensor) -> Tensor:
    """``[k, n, H]`` to ``[H, k * n]``."""
    return x.flatten(0, 1).mT


def _sums(values: Tensor, starts: Tensor) -> Tensor:
    """``[H, E]`` summed over consecutive edges, ``[H, len(starts) - 1]``."""
    heads, count = values.shape
    if not count:
        return values.new_zeros(heads, starts.numel() - 1)
    # Clone: a single column counts as contiguous with any strides, and would take a slow path.
    return row_sums(values.mT.clone(memory_format=torch.contiguous_format), starts).mT


def _bags(edges: Edges, by_source: bool, rows: Tensor, weights: Tensor) -> Tensor:
    """``sum_e weights[h, e] rows[end of e, h]`` over the edges into every target (out of every source): ``[n, H, d]`` to ``[H, r, d]``.

    Args:
        weights: ``[H, E]``, by source in ``edges.order``.
    """
    heads, count = weights.shape
    index, ends = edges.bags(by_source, heads, interleaved=True)
    if not count:
        return rows.new_zeros(heads, (ends.numel() - 1) // heads, rows.shape[2])
    out = F.embedding_bag(index, rows.flatten(0, 1), ends, mode="sum", per_sample_weights=weights.flatten(), include_last_offset=True)
    return out.view(heads, -1, rows.shape[2])


class _Additive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, edges: Edges, slope: float) -> Tensor:
        total = source.index_select(1, edges.source) + target.index_select(1, edges.target)
        ctx.edges, ctx.slope = edges, slope
        ctx.save_for_backward(total > 0)
        return torch.where(total > 0, total, slope * total)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (positive,), edges = ctx.saved_tensors, ctx.edges
        moved = gradient.ne(0)
        sides = torch.cat([positive & moved, ~positive & moved]).to(gradient.dtype)
        gradient = torch.where(positive, gradient, ctx.slope * gradient)
        to_target, above, below = _sums(torch.cat([gradient, sides]), edges.into).chunk(3)
        to_target = to_target * (above.gt(0) & below.gt(0))
        return _sums(gradient.index_select(1, edges.order), edges.out_of), to_target, None, None


class _Attend(torch.autograd.Function):
    """With alpha = softmax(s) and ``y_v = sum_e alpha_e m_e x_u``: ``ds_e = alpha_e (m_e <dy_v, x_u> - <dy_v, y_v>)``."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scores: Tensor, keep: Tensor | None, edges: Edges, targets: int) -> Tensor:
        heads = len(scores)
        alpha = softmax(scores, edges, targets)
        weights = alpha if keep is None else alpha * keep
        rows = values.unflatten(1, (heads, -1))
        out = _bags(edges, False, rows.contiguous(), weights)
        ctx.edges, ctx.heads, ctx.keep, ctx.out = edges, heads, keep, out
        ctx.save_for_backward(values, alpha, weights)
        return _node_major(out)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (values, alpha, weights), edges, out = ctx.saved_tensors, ctx.edges, ctx.out
        rows = gradient.unflatten(1, (ctx.heads, -1)).contiguous()
        back = _bags(edges, True, rows, weights.index_select(1, edges.order))
        by_head = rows.transpose(0, 1).contiguous()
        each = edges.dots(by_head, values.unflatten(1, (ctx.heads, -1)).transpose(0, 1).contiguous())
        each = each if ctx.keep is None else each * ctx.keep
        mean = (by_head * out).sum(-1)
        # The score of a single edge has no influence.
        to_scores = (alpha * alpha.ne(1)) * (each - mean.index_select(1, edges.target))
        return _node_major(back), to_scores, None, None, None


def _node_major(x: Tensor) -> Tensor:
    """``[H, n, d]`` to ``[n, H * d]``."""
    return x.transpose(0, 1).flatten(1)


def row_sums(rows: Tensor, starts: Tensor) -> Tensor:
    """``[E, h]`` summed over consecutive rows."""
    index = torch.arange(len(rows), device=rows.device)
    return F.embedding_bag(index, rows, starts, mode="sum", include_last_offset=True)
