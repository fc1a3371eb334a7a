"""Diagonal Gaussians: divergence, statistics of a class, mixtures reduced to one Gaussian."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Gaussian(NamedTuple):
    """Attributes: mean, variance ``[..., d]``."""

    mean: Tensor
    variance: Tensor


def divergence(one: Gaussian, other: Gaussian) -> Tensor:
    """Return ``KL(one || other)``, summed over the d dimensions."""
    ratio = one.variance / other.variance
    return 0.5 * (ratio - 1 - torch.log(ratio) + (other.mean - one.mean) ** 2 / other.variance).sum(-1)


def divergence_from_standard(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return ``KL(N(mean, variance) || N(0, I))``, summed over the d dimensions."""
    return 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1)


def class_gaussians(mean: Tensor, log_variance: Tensor, shares: Tensor) -> Gaussian:
    """Return one Gaussian per class from its posteriors: the mean of means, and the mean variance plus the variance of means.

    Args:
        mean, log_variance: ``[k, n, d]``, posteriors of all nodes.
        shares: ``[k, Y, n]``, weights of the nodes per class, with sum one (zero for an absent class).

    Returns:
        ``[k, Y, d]``; zero for an absent class.
    """
    center = shares @ mean
    centered = mean - (shares > 0).to(mean.dtype).mT @ center
    return Gaussian(center, shares @ (log_variance.exp() + centered**2))


def matched(weights: Tensor, each: Gaussian) -> Gaussian:
    """Return the Gaussians with the first two moments of mixtures (diagonal of the covariance).

    Args:
        weights: ``[..., m, C]``, the weights of m mixtures of C components; rows sum to one, or to zero.
        each: the components, ``[..., C, d]``.

    Returns:
        ``[..., m, d]``.
    """
    mean = weights @ each.mean
    squares = (each.mean[..., None, :, :] - mean[..., None, :]) ** 2
    return Gaussian(mean, weights @ each.variance + (weights[..., None] * squares).sum(-2))
