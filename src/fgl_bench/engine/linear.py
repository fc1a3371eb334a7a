"""Stacked dense products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Batched products with a narrow result are several times faster transposed on a CPU (measured with MKL on AVX2).
NARROW = 32
# Share of rows that are no padding, from which on all blocks are one product: a guess. With the Louvain clients of CS, far below it,
# products block by block take FedSage+'s round from 2.8 to 1.1 s.
MOSTLY_FULL = 0.8


class _Narrow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.bmm(weight.mT, x.mT).mT.contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        # Contiguous towards x: the following operations are element-wise and wide.
        return torch.bmm(gradient, weight.mT), torch.bmm(gradient.mT, x).mT


def product(held: Tensor, weight: Tensor) -> Tensor:
    """``held @ weight``, stacked, where ``held`` is data: computed in the type of ``held``, returned in the type of ``weight``."""
    return torch.bmm(held, weight.to(held.dtype)).to(weight.dtype)


def ragged(held: Tensor, weight: Tensor, counts: Sequence[int]) -> Tensor:
    """``held @ weight``, ``[k, m, F]`` and ``[k, F, h]`` to ``[k, m, h]``, where of block i the rows from ``counts[i]`` on are zero.

    Where much is padding, a CPU multiplies block by block; a GPU would start k kernels for it.
    """
    if held.is_cuda or sum(counts) > MOSTLY_FULL * held.shape[0] * held.shape[1]:
        return torch.bmm(held, weight)
    products = [rows[:count] @ w for rows, w, count in zip(held, weight, counts, strict=True)]
    return torch.stack([F.pad(rows, (0, 0, 0, held.shape[1] - len(rows))) for rows in products])


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x[i] @ weight[i]``: ``[k, n, a]`` and ``[k, a, b]`` to ``[k, n, b]``."""
    if x.is_cuda or weight.shape[2] > NARROW:
        return torch.bmm(x, weight)
    return _Narrow.apply(x, weight)


def taken(x: Tensor, index: Tensor) -> Tensor:
    """The rows ``index [m]`` of ``x``, ``[N, h]`` to ``[m, h]``, where rows repeat: gradients are summed in a fixed order on every device.

    Backward, ``index_select`` adds with atomics on a GPU, and an index sorts; on a CPU both have an order, and the former is faster.
    """
    return x[index] if x.is_cuda else x.index_select(0, index)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """``x [k, n, h]`` with negative entries times ``slope [k, 1]``."""
    # At 0 the gradient is the slope, in every release of torch; that of clamp is not.
    return F.prelu(x[None], slope[:, 0])[0]


class _WithoutGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.zeros_like(gradient)


def without_gradient(x: Tensor) -> Tensor:
    """``x``, with a gradient of exactly zero: for a parameter without influence, whose computed gradient would be a rounding."""
    return _WithoutGradient.apply(x)


def affine(x: Tensor, parameters: Mapping[str, Tensor], name: str) -> Tensor:
    """``x W + b`` with the parameters ``<name>.weight`` ``[k, a, b]`` and ``<name>.bias`` ``[k, b]``."""
    return linear(x, parameters[f"{name}.weight"]) + parameters[f"{name}.bias"][:, None]
