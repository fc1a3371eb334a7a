"""The scores of GATv2 edge by edge, compiled: the same as :mod:`~fgl_bench.engine.kernels.dynamic_scores`, without a row for every edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.kernels.compiled import loop, parallel_for, shares
from fgl_bench.engine.sparse import Edges


@loop
def scores_forward(
    source: Any, target: Any, weight: Any, index: Any, into: Any, per: int, slope: Any, out: Any, first: int, last: int
) -> None:
    """The scores of the edges into the targets from ``first`` to ``last``.

    Args:
        source, target: ``[k * c, H, d]`` and ``[k * r, H, d]``.
        weight: ``[k, H, d]``; ``per`` targets have one of its k.
        index, into: source and bounds of the edges, as :class:`~fgl_bench.engine.sparse.Edges` has them.
        out: ``[E, H]``.
    """
    _, heads, width = target.shape
    zero = target.dtype.type(0)
    for v in range(first, last):
        w, here = weight[v // per], target[v]
        for e in range(into[v], into[v + 1]):
            there = source[index[e]]
            for h in range(heads):
                total = zero
                for j in range(width):
                    x = there[h, j] + here[h, j]
                    total += w[h, j] * (x if x > 0 else slope * x)
                out[e, h] = total


@loop
def scores_backward(
    source: Any, target: Any, weight: Any, index: Any, into: Any, per: int, slope: Any, gradient: Any,
    to_source: Any, to_target: Any, to_weight: Any, first: int, last: int,
) -> None:  # fmt: skip
    """Add to the gradients of :func:`scores_forward`'s inputs, from the scores' gradient ``[E, H]``, for the same targets.

    A target's gradient is exactly zero where all of its edges have one slope.
    """
    _, heads, width = target.shape
    zero, one = target.dtype.type(0), target.dtype.type(1)
    sums, above = np.empty(width, target.dtype), np.empty(width, target.dtype)
    for v in range(first, last):
        w, here, to_w = weight[v // per], target[v], to_weight[v // per]
        for h in range(heads):
            sums[:] = zero
            above[:] = zero
            count = zero
            for e in range(into[v], into[v + 1]):
                g = gradient[e, h]
                if g != 0:
                    count += one
                    there, to_there = source[index[e]], to_source[index[e]]
                    for j in range(width):
                        x = there[h, j] + here[h, j]
                        positive = x > 0
                        each = g if positive else g * slope
                        flow = each * w[h, j]
                        to_there[h, j] += flow
                        sums[j] += flow
                        to_w[h, j] += each * x
                        above[j] += one if positive else zero
            for j in range(width):
                if above[j] > 0 and above[j] < count:
                    to_target[v, h, j] += sums[j]


class DynamicScores(torch.autograd.Function):
    """As ``dynamic_scores._Dynamic``; whole replicas on every thread."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, weight: Tensor, edges: Edges, slope: float) -> Tensor:
        k, heads, width = weight.shape
        per, arrays = target.shape[0] // k, [x.detach().contiguous().view(-1, heads, width).numpy() for x in (source, target, weight)]
        out = source.new_empty(edges.source.numel(), heads)
        ctx.constants = edges.source.numpy(), edges.into.numpy(), max(per, 1), np.asarray(slope, arrays[0].dtype)[()]
        ctx.ranges = [(first * per, last * per) for first, last in shares(np.diff(edges.bounds).tolist())]
        ctx.save_for_backward(source, target, weight)
        scores = out.numpy()
        parallel_for(ctx.ranges, lambda first, last: scores_forward(*arrays, *ctx.constants, scores, first, last))
        return out.mT.contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        held = ctx.saved_tensors
        shape = (-1, *held[2].shape[1:])
        arrays = [x.detach().contiguous().view(shape).numpy() for x in held]
        gradients = [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in held]
        out, each = [x.view(shape).numpy() for x in gradients], gradient.mT.contiguous().numpy()
        parallel_for(ctx.ranges, lambda first, last: scores_backward(*arrays, *ctx.constants, each, *out, first, last))
        return gradients[0], gradients[1], gradients[2], None, None
