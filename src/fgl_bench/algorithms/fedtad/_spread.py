"""Spread of FedTAD's generated nodes relative to the spread of their noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = {"cpu": 1 << 18, "cuda": 1 << 26}  # entries at a time; on a CPU they stay in the cache


def spread(noise: Tensor, features: Tensor) -> Tensor:
    """Return ``mean_ab ms(z_a - z_b) ma(x_a - x_b)`` over all ordered pairs, ``[S]``: ms the mean square, ma the mean absolute value."""
    square = noise.square().sum(-1)
    distances = (square[..., None] + square[..., None, :] - 2 * noise @ noise.mT).clamp(min=0)
    total = _PairwiseDistance.apply(distances / noise.shape[-1], features)
    return total / (features.shape[1] ** 2 * features.shape[2])


class _PairwiseDistance(torch.autograd.Function):
    """``sum_ab c_ab |x_a - x_b|_1`` for every seed, ``[S, n, n]`` symmetric and ``[S, n, F]`` to ``[S]``.

    Never stores n x n x F entries: the gradient ``2 sum_b c_ab sign(x_a - x_b)`` is computed for a few rows a at a time, and the sum,
    homogeneous in x, is the inner product of the gradient with x.
    """

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, x: Tensor) -> Tensor:
        gradient = _signs(coefficients.detach(), x.detach())
        ctx.save_for_backward(gradient)
        return (gradient * x).sum((1, 2))

    @staticmethod
    def backward(ctx: Any, out: Tensor) -> tuple[None, Tensor]:
        (gradient,) = ctx.saved_tensors
        return None, gradient * out[:, None, None]


def _signs(coefficients: Tensor, x: Tensor) -> Tensor:
    """Return ``2 sum_b c_ab sign(x_a - x_b)``, ``[S, n, F]``."""
    out, nodes = torch.empty_like(x), x.shape[1]
    step = min(nodes, max(1, BLOCK.get(x.device.type, 1 << 26) // x.numel()))
    room = x.new_empty(x.shape[0], step, *x.shape[1:])  # fresh memory for every block costs as much as filling it
    for a in range(0, nodes, step):
        block = slice(a, min(a + step, nodes))
        sign = torch.sub(x[:, block, None], x[:, None], out=room[:, : block.stop - a]).sign_()
        out[:, block] = torch.matmul(coefficients[:, block, None], sign)[:, :, 0]
    return out.mul_(2)
