"""Statistics of propagated predictions for topology-aware methods."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, Operator, adjacency, gcn_operator


def propagate(labels: Tensor, batch: Batch, operator: Operator, steps: int, keep: float, inject: Tensor | None = None) -> Tensor:
    """Apply ``Y <- keep * Y0 + (1 - keep) * P Y`` ``steps`` times to ``labels [k, n, Y]``, with P from ``operator``.

    Args:
        inject: ``[k, n, Y]`` added after every step (FedGTA's official code adds the one-hot training labels).
    """
    matrix, fixed = batch.operator(operator), keep * labels
    for _ in range(steps):
        labels = (matrix @ labels).mul_(1 - keep).add_(fixed)
        if inject is not None:
            labels.add_(inject)
    return labels


def labels_propagated(soft: Tensor, batch: Batch, steps: int, alpha: float) -> Tensor:
    """Propagate labels as in FedGTA's official code, ``[k, n, Y]`` to the same shape.

    Training rows start from the one-hot truth, the others from the predictions ``soft``; after every step
    ``Y <- (1 - alpha) Y0 + alpha S Y`` the truth is added to the training rows again.
    """
    truth = batch.truth(soft.shape[-1])
    return propagate(torch.where(batch.train[..., None], truth, soft), batch, gcn_operator, steps, 1 - alpha, inject=truth)


def with_truth(labels: Tensor, batch: Batch) -> Tensor:
    """Return ``labels [k, n, Y]`` with the rows of training nodes reset to their one-hot truth."""
    return torch.where(batch.train[..., None], batch.truth(labels.shape[-1]).to(labels.dtype), labels)


def smoothing_confidence(soft: Tensor, batch: Batch) -> Tensor:
    """Return ``sum_v d_v sum_c (1/e + y ln y)`` over the real nodes, ``[k]`` float64 (FedGTA, eq. 4; FedSA-GCL, eq. 7).

    1/e is inside the sum over classes, so every term is non-negative for ``soft [k, n, Y]`` in [0, 1]; values that
    propagation moved outside this range are clamped.
    """
    y = soft.double().clamp(1e-8, 1.0)
    each = (math.exp(-1) + y * y.log()).sum(-1)
    return (each * batch.degree.double() * batch.valid).sum(1)


def hybrid_moments(soft: Tensor, batch: Batch, orders: int) -> dict[str, Tensor]:
    """Return raw and central moments 1..P of the rows of ``soft [k, n, Y]`` over the real nodes, each ``[k, P * Y]`` float64."""
    valid = batch.valid[..., None].double()
    y, count = soft.double() * valid, valid.sum(1).clamp(min=1)
    mean = y.sum(1, keepdim=True) / count[:, None]
    powers = [torch.cat([y, (y - mean) * valid], 2)]
    for _ in range(orders - 1):
        powers.append(powers[-1] * powers[0])
    moments = (torch.cat(powers, 2).sum(1) / count).unflatten(1, (orders, 2, -1))
    return {"raw": moments[:, :, 0].flatten(1), "central": moments[:, :, 1].flatten(1)}


def soft_label_features(soft: Tensor, batch: Batch) -> Tensor:
    """Return the soft-label feature matrix ``(D Y)^T A (D Y)``, ``[k, Y, Y]`` float64, scaled to unit Frobenius norm.

    FedSA-GCL, eq. 4, over both directions of every edge (the factor of two and the norm cancel in the cosine). Entries
    grow like products of degrees, so they are scaled before rounding. Zero without edges.
    """
    weighted = soft.double() * batch.degree.double()[..., None]
    weighted = weighted / weighted.abs().amax((1, 2), keepdim=True).clamp(min=1e-30)
    neighbors = batch.operator(adjacency) @ weighted.to(batch.dtype)
    features = weighted.mT @ neighbors.double()
    return features / features.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30)
