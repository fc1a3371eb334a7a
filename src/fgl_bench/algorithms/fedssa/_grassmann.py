"""Column spaces as points of the Grassmann manifold."""

from __future__ import annotations

import torch
from torch import Tensor


def orthonormal(matrix: Tensor, tolerance: float = 1e-5) -> Tensor:
    """Return an orthonormal basis of every matrix's column space, ``[..., F, J]`` to the same shape, with zero columns beyond the rank.

    Gram-Schmidt with column pivoting and reorthogonalization, which reveals the rank: remaining columns shorter than ``tolerance``
    times the longest column are treated as rounding errors.
    """
    rest = matrix.clone()
    least = tolerance * rest.norm(dim=-2).amax(-1, keepdim=True)
    basis = torch.zeros_like(matrix)
    for j in range(min(matrix.shape[-2:])):
        size, pick = rest.norm(dim=-2).max(-1, keepdim=True)
        column = rest.gather(-1, pick[..., None, :].expand(*rest.shape[:-1], 1))[..., 0]
        column = column - (basis @ (basis.mT @ column[..., None]))[..., 0]
        column = torch.where(size > least, column / column.norm(dim=-1, keepdim=True).clamp(min=1e-300), 0.0)
        basis[..., j] = column
        rest = rest - column[..., None] * (column[..., None, :] @ rest)
    return basis


def overlaps(bases: Tensor) -> Tensor:
    """Return ``|Q_i^T Q_j|_F^2`` of all pairs, ``[..., C, F, J]`` to ``[..., C, C]``: the inner products of the projectors Q Q^T."""
    *lead, count, _, width = bases.shape
    rows = bases.mT.flatten(-3, -2)
    return (rows @ rows.mT).square().view(*lead, count, width, count, width).sum((-3, -1))


def chordal_distances(inner: Tensor) -> Tensor:
    """Return chordal distances ``[..., C, C]`` from :func:`overlaps`: the root of the sum of squared sines of principal angles.

    For spaces of different dimensions, the smaller one determines the number of angles.
    """
    rank = inner.diagonal(dim1=-2, dim2=-1)
    return (torch.minimum(rank[..., None], rank[..., None, :]) - inner).clamp(min=0).sqrt()
