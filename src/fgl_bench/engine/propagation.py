"""Propagation without trainable parts: precomputed hops of a client's features, and polynomial filters applied on the fly.

In the filters P = D^-1/2 A D^-1/2 (no self loops, a zero row for an isolated node).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph, Features
from fgl_bench.engine.batch import Batch, DenseBlocks, Operator, adjacency, gcn_operator, plain_operator
from fgl_bench.engine.derived import Derived
from fgl_bench.engine.sparse import BlockSparse

# Numbers of float64 that one client's propagation holds at a time (64 MB), so that wide features cost no second copy.
BLOCK = 1 << 23


@dataclass(frozen=True)
class Skewed:
    """``S_r = (D+I)^(r-1) (A+I) (D+I)^-r``: r = 0 is the mean over a node and its neighbors' rows, 0.5 the symmetric form."""

    r: float

    __name__ = "skewed_operator"

    def __call__(self, client: ClientGraph) -> sp.csr_matrix:
        matrix = (adjacency(client) + sp.eye(client.num_nodes)).tocsr()
        degree = np.asarray(matrix.sum(1)).ravel()
        return (sp.diags(degree ** (self.r - 1)) @ matrix @ sp.diags(degree**-self.r)).tocsr()


def loops_operator(r: float) -> Operator:
    """``S_r``; the common symmetric one is the operator that others use too."""
    return gcn_operator if r == 0.5 else Skewed(r)


def dense(features: Features | sp.csc_matrix) -> np.ndarray:
    """``features`` as a float64 array."""
    return np.asarray(features.toarray() if sp.issparse(features) else features, dtype=np.float64)


def identity(hops: int) -> tuple[tuple[float, ...], ...]:
    """Coefficients of the hops 0 to ``hops``, each a matrix of its own."""
    return tuple(tuple(float(i == j) for j in range(hops + 1)) for i in range(hops + 1))


@dataclass(frozen=True)
class Hops(Derived):
    """Matrix c is ``sum_l coefficients[c][l] S_r^l X``, made in float64."""

    coefficients: tuple[tuple[float, ...], ...]
    r: float = 0.5

    @property
    def copies(self) -> int:
        return len(self.coefficients)

    @property
    def operator(self) -> Operator:
        """The matrix of one hop."""
        return loops_operator(self.r)

    def fill(self, client: ClientGraph, out: np.ndarray) -> None:
        operator = self.operator(client)
        features = client.features.tocsc() if sp.issparse(client.features) else client.features
        width = max(1, BLOCK // (client.num_nodes * (2 + self.copies)))
        for start in range(0, features.shape[1], width):
            x = dense(features[:, start : start + width])
            total = np.zeros((self.copies, *x.shape))
            for hop in range(len(self.coefficients[0])):
                x = operator @ x if hop else x
                for c, row in enumerate(self.coefficients):
                    if row[hop]:
                        total[c] += row[hop] * x
            out[:, :, start : start + width] = total


@dataclass(frozen=True)
class OneHop(Hops):
    """One hop of any operator."""

    coefficients: tuple[tuple[float, ...], ...] = ((0.0, 1.0),)
    by: Operator = gcn_operator

    @property
    def operator(self) -> Operator:
        return self.by

    @property
    def key(self) -> str:
        # A function's repr holds its address.
        return f"{getattr(self.by, '__qualname__', repr(self.by))} {self.coefficients}"


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
