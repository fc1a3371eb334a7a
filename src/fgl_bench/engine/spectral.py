"""Polynomial graph filters, applied on the fly.

P = D^-1/2 A D^-1/2 throughout (no self loops, a zero row for an isolated node).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, DenseBlocks, plain_operator
from fgl_bench.engine.sparse import BlockSparse


class _Chebyshev(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, x: Tensor, matrix: BlockSparse) -> Tensor:
        ctx.save_for_backward(coefficients, x)
        ctx.matrix = matrix
        out = coefficients[:, 0, None, None] * x
        for k, term in enumerate(_terms(matrix, x, coefficients.shape[1])):
            out += coefficients[:, k + 1, None, None] * term
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        # The filter is symmetric: the same terms of the gradient serve both arguments.
        coefficients, x = ctx.saved_tensors
        to_x, inner = coefficients[:, 0, None, None] * gradient, [(gradient * x).sum((1, 2))]
        for k, term in enumerate(_terms(ctx.matrix, gradient, coefficients.shape[1])):
            to_x += coefficients[:, k + 1, None, None] * term
            inner.append((term * x).sum((1, 2)))
        return torch.stack(inner, 1), to_x, None


def _terms(matrix: BlockSparse, x: Tensor, count: int) -> Iterator[Tensor]:
    """``T_1(P) x, ..., T_{count - 1}(P) x``."""
    before, now = x, None
    for _ in range(count - 1):
        before, now = (before, matrix.multiply(x)) if now is None else (now, 2 * matrix.multiply(now) - before)
        yield now


def chebyshev_filter(matrix: BlockSparse, coefficients: Tensor, x: Tensor) -> Tensor:
    """``sum_k c_k T_k(P) x`` with the replica's own scalars c: ``[k, J]`` and ``[k, n, h]`` to ``[k, n, h]``; P must be symmetric.

    As many sparse products as the degree says, forward and backward, and no activations kept but x.
    """
    return _Chebyshev.apply(coefficients, x, matrix)


def chebyshev_terms(matrix: BlockSparse, x: Tensor, count: int) -> Tensor:
    """``T_0(P) x, ..., T_{count - 1}(P) x``, ``[k, count, n, h]``, outside autograd."""
    return torch.stack([x, *_terms(matrix, x, count)], 1)


def mean_terms(batch: Batch, count: int) -> Tensor:
    """The mean over a client's nodes of the rows of ``T_j(P) X`` for j < count, ``[k, count, F]``; only vectors are propagated."""
    share = batch.valid.to(batch.dtype) / batch.valid.sum(1, keepdim=True).clamp(min=1)
    weights = chebyshev_terms(batch.operator(plain_operator), share[..., None], count)[..., 0]
    features = batch.features
    if isinstance(features, BlockSparse):
        return (features.T @ weights.mT.contiguous()).mT
    assert isinstance(features, DenseBlocks)
    return torch.bmm(weights.to(features.values.dtype), features.values).to(weights.dtype)
