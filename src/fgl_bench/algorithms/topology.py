"""Statistics of propagated predictions, which topology-aware methods report."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.batch import Batch, Operator, adjacency, gcn_operator


def propagate(labels: Tensor, batch: Batch, operator: Operator, steps: int, keep: float, inject: Tensor | None = None) -> Tensor:
    """``Y <- keep * Y0 + (1 - keep) * P Y``, ``steps`` times, with P from ``operator``; ``[k, n, Y]`` to the same.

    Args:
        inject: ``[k, n, Y]`` added after every step (FedGTA's official code adds the one-hot training labels).
    """
    matrix, start = batch.operator(operator), labels
    for _ in range(steps):
        labels = keep * start + (1 - keep) * (matrix @ labels)
        if inject is not None:
            labels = labels + inject
    return labels


def labels_propagated(soft: Tensor, batch: Batch, steps: int, alpha: float) -> Tensor:
    """Label propagation of FedGTA's official code, ``[k, n, Y]`` to the same.

    Training rows start from the one-hot truth, the others from the predictions ``soft``; after every step
    ``Y <- (1 - alpha) Y0 + alpha S Y`` the truth is added to the training rows again.
    """
    train = batch.train[..., None]
    truth = F.one_hot(batch.labels, soft.shape[-1]).to(soft.dtype)
    return propagate(torch.where(train, truth, soft), batch, gcn_operator, steps, 1 - alpha, inject=truth * train)


def with_truth(labels: Tensor, batch: Batch) -> Tensor:
    """``labels [k, n, Y]`` with the rows of training nodes reset to their one-hot truth."""
    return torch.where(batch.train[..., None], F.one_hot(batch.labels, labels.shape[-1]).to(labels.dtype), labels)


def smoothing_confidence(soft: Tensor, batch: Batch) -> Tensor:
    """``sum_v d_v sum_c (1/e + y ln y)`` over the real nodes, ``[k]`` float64 (FedGTA, eq. 4; FedSA-GCL, eq. 7).

    1/e stands inside the sum over classes, which makes every term non-negative for ``soft [k, n, Y]`` in [0, 1]; what
    propagation left outside is clamped.
    """
    y = soft.double().clamp(1e-8, 1.0)
    each = (math.exp(-1) + y * y.log()).sum(-1)
    return (each * batch.degree.double() * batch.valid).sum(1)


def hybrid_moments(soft: Tensor, batch: Batch, orders: int) -> dict[str, Tensor]:
    """Raw and central moments 1..P of the rows of ``soft [k, n, Y]`` over the real nodes, each ``[k, P * Y]`` float64."""
    y, valid = soft.double(), batch.valid[..., None].double()
    count = valid.sum(1).clamp(min=1)
    mean = (y * valid).sum(1, keepdim=True) / count[:, None]
    moments = {}
    for name, base in (("raw", y), ("central", y - mean)):
        power, powers = valid, []
        for _ in range(orders):
            power = power * base
            powers.append(power.sum(1))
        moments[name] = torch.cat(powers, 1) / count
    return moments


def soft_label_features(soft: Tensor, batch: Batch) -> Tensor:
    """The soft-label feature matrix ``(D Y)^T A (D Y)``, ``[k, Y, Y]`` float64, scaled to unit Frobenius norm.

    FedSA-GCL, eq. 4, over both directions of every edge (the factor of two and the norm cancel in the cosine). Entries
    grow like products of degrees, hence the scaling before anything is rounded. Zero without edges.
    """
    weighted = soft.double() * batch.degree.double()[..., None]
    weighted = weighted / weighted.abs().amax((1, 2), keepdim=True).clamp(min=1e-30)
    neighbours = batch.operator(adjacency) @ weighted.to(batch.dtype)
    features = weighted.mT @ neighbours.double()
    return features / features.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30)
