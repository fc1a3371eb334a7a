"""Batched k-means of small sets of points, from their inner products."""

from __future__ import annotations

import torch
from torch import Tensor


def kmeans(gram: Tensor, there: Tensor, draws: Tensor, iterations: int) -> Tensor:
    """Return the best of R k-means clusterings of every set of C points.

    Centers are initialized by k-means++ (Arthur & Vassilvitskii, SODA 2007). Only inner products are used, so points may be in any
    inner product space, e.g. projectors on the Grassmann manifold. There are fewer than K clusters if there are fewer distinct
    points; a cluster that loses its last point stays empty. The result is a pure function of the arguments.

    Args:
        gram: ``[..., C, C]`` inner products.
        there: ``[..., C]`` bool, the points to cluster.
        draws: ``[..., R, K]`` from [0, 1), for the initial centers of R attempts at K clusters; infinite for fewer clusters.
        iterations: assignments after the first.

    Returns:
        ``[..., C, K]`` bool, the cluster of every point; no cluster for points outside ``there``.
    """
    gram = gram[..., None, :, :]
    there = there[..., None, :]
    square = gram.diagonal(dim1=-2, dim2=-1)
    distances = (square[..., None] + square[..., None, :] - 2 * gram).clamp(min=0)
    numbers = torch.where(there[..., None], torch.arange(draws.shape[-1], device=draws.device), -1)
    start = _plus_plus(distances, square.abs().amax(-1, keepdim=True), there, draws)
    member = _nearest(start, numbers)
    gram = gram.expand(*start.shape[:-1], -1).contiguous()  # otherwise every product would copy it
    for _ in range(iterations):
        size = member.sum(-2, dtype=gram.dtype)
        mean = member / size[..., None, :].clamp(min=1)
        cross = gram @ mean
        within = (mean * cross).sum(-2).masked_fill_(size == 0, torch.inf)
        distance = torch.sub(square[..., None], cross, alpha=2).add_(within[..., None, :])
        member = _nearest(distance, numbers)
    size = member.sum(-2, dtype=gram.dtype)
    mean = member / size[..., None, :].clamp(min=1)
    inertia = (square * there).sum(-1) - (member * (gram @ mean)).sum((-2, -1))
    best = inertia.argmin(-1)[..., None, None, None].expand(*inertia.shape[:-1], 1, *member.shape[-2:])
    return member.gather(-3, best).squeeze(-3)


def _plus_plus(distances: Tensor, scale: Tensor, there: Tensor, draws: Tensor) -> Tensor:
    """Return squared distances ``[..., R, C, K]`` to the initial centers; infinite if no distinct point is left."""
    chance = there.expand(*draws.shape[:-1], there.shape[-1]).to(distances.dtype)
    nearest, chosen, least = torch.full_like(chance, torch.inf), [], 1e-12 * scale
    for draw in draws.unbind(-1):
        total = chance.cumsum(-1)
        further = total > draw[..., None] * total[..., -1:]
        pick = further.to(torch.uint8).argmax(-1)
        index = pick[..., None, None].expand(*pick.shape, distances.shape[-1], 1)
        distance = distances.expand(*pick.shape, *distances.shape[-2:]).gather(-1, index)[..., 0]
        distance = torch.where(further[..., -1:], distance, torch.inf)
        chosen.append(distance)
        nearest = torch.minimum(nearest, distance)
        # A point equal to a center up to rounding cannot be another center.
        chance = torch.where(there & (nearest > least) & (nearest < torch.inf), nearest, 0.0)
    return torch.stack(chosen, -1)


def _nearest(distance: Tensor, numbers: Tensor) -> Tensor:
    """Return every point's nearest center, the first of equals, ``[..., C, K]`` bool.

    Args:
        numbers: ``[..., C, K]``, numbers of the centers, 0 to K - 1; all -1 for points outside ``there``.
    """
    return distance.argmin(-1, keepdim=True) == numbers


def same_cluster(member: Tensor) -> Tensor:
    """Return True for pairs of points in the same cluster, ``[..., C, K]`` to ``[..., C, C]`` bool."""
    member = member.double()
    return (member @ member.mT) > 0
