"""Deep embedded clustering (Xie, Girshick & Farhadi, ICML 2016) of the rows of many replicas at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.dropout import Dropout
from fgl_bench.engine.random_numbers import step_key, uniform

HIDDEN = (128, 512, 128)  # widths of the encoder's hidden layers
CORRUPTION = 0.2  # share of units that are dropped while the autoencoder trains
BATCH, MOMENTUM = 32, 0.9
STARTS, ITERATIONS = 20, 20  # of k-means

Objective = Callable[[list[Tensor], Tensor, Tensor], Tensor]


class Draws:
    """Random keys: every call returns new keys ``[k]``, from one stream per replica."""

    def __init__(self, streams: Tensor):
        self.streams, self.calls = streams, 0

    def __call__(self) -> Tensor:
        self.calls += 1
        return step_key(self.streams, torch.full_like(self.streams, self.calls), 0)


def deep_clusters(rows: Tensor, valid: Tensor, clusters: int, epochs: Sequence[int], draws: Draws) -> Tensor:
    """Return the cluster of every row, ``[k, n]`` int64.

    A denoising autoencoder is trained layer by layer and then as a whole. Its encoder and the centers, which begin as those of k-means,
    then descend on ``KL(P || Q)``, where Q are Student-t similarities of codes and centers, and ``P_ij`` is ``Q_ij^2 / sum_i Q_ij``,
    normalized over j.

    Args:
        rows: ``[k, n, d]``, of k replicas that are clustered independently.
        valid: ``[k, n]`` bool, rows that are not padding.
        clusters: number of centers; some may get no row.
        epochs: passes over the rows in each of the three stages: layers, whole autoencoder, clustering.
    """
    encoder: list[Tensor] = []
    decoder: list[Tensor] = []
    codes = rows
    widths = (rows.shape[2], *HIDDEN, rows.shape[2])
    for i, (wide, narrow) in enumerate(pairwise(widths)):
        last = i == len(HIDDEN)
        pair = [*layer(wide, narrow, rows, draws), *layer(narrow, wide, rows, draws)]
        denoised = partial(_denoised, codes, draws, last)
        pair = descend(pair, denoised, valid, epochs[0], 0.1, draws)
        codes = codes if last else torch.relu(through(pair[:2], codes))
        encoder, decoder = [*encoder, *pair[:2]], [*pair[2:], *decoder]

    def reconstruction(layers: list[Tensor], index: Tensor, active: Tensor) -> Tensor:
        part = taken(rows, index)
        return (through(layers, Dropout(CORRUPTION, draws())(part)) - part).square().mean(-1)

    encoder = descend([*encoder, *decoder], reconstruction, valid, epochs[1], 0.01, draws)[: len(encoder)]

    def divergence(parameters: list[Tensor], index: Tensor, active: Tensor) -> Tensor:
        soft = similarities(through(parameters[:-1], taken(rows, index)), parameters[-1])
        square = soft.square() / (soft * active[..., None]).sum(1, keepdim=True)
        wanted = (square / square.sum(-1, keepdim=True)).detach()
        return (wanted * (wanted.log() - soft.log())).sum(-1)

    centers = k_means(through(encoder, rows), valid, clusters, draws)
    *encoder, centers = descend([*encoder, centers], divergence, valid, epochs[2], 0.01, draws)
    return similarities(through(encoder, rows), centers).argmax(-1)


def _denoised(rows: Tensor, draws: Draws, last: bool, pair: list[Tensor], index: Tensor, active: Tensor) -> Tensor:
    """Return the squared errors ``[k, b]`` of one layer and its inverse; the last code has no ReLU and is not corrupted."""
    part = taken(rows, index)
    code = through(pair[:2], part)
    code = code if last else Dropout(CORRUPTION, draws())(torch.relu(code))
    return (through(pair[2:], code) - part).square().mean(-1)


def layer(wide: int, narrow: int, rows: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """Return a Glorot-uniform weight ``[k, wide, narrow]`` for ReLU and a zero bias, of the type of ``rows [k, n, d]``."""
    bound = math.sqrt(2) * math.sqrt(6 / (wide + narrow))
    weight = bound * (2 * uniform(draws(), wide, narrow) - 1)
    return weight.to(rows.dtype), rows.new_zeros(len(rows), narrow)


def through(layers: list[Tensor], x: Tensor) -> Tensor:
    """Return the linear layers (weight, bias, weight, ...) of ``x [k, n, a]``, with ReLU between them."""
    for i in range(0, len(layers), 2):
        x = torch.baddbmm(layers[i + 1][:, None], torch.relu(x) if i else x, layers[i])
    return x


def taken(rows: Tensor, index: Tensor) -> Tensor:
    """Return the rows ``index [k, b]`` of ``rows [k, n, d]``."""
    return rows.gather(1, index[..., None].expand(*index.shape, rows.shape[2]))


def descend(parameters: list[Tensor], objective: Objective, valid: Tensor, epochs: int, lr: float, draws: Draws) -> list[Tensor]:
    """Return the parameters after ``epochs`` of gradient descent with momentum, in random mini-batches of each replica's valid rows.

    Args:
        objective: function of the parameters, rows ``[k, b]`` and the mask ``[k, b]`` of those that count, to losses ``[k, b]``.
    """
    momenta, counts = [torch.zeros_like(each) for each in parameters], valid.sum(1, keepdim=True)
    for _ in range(epochs):
        order = uniform(draws(), valid.shape[1], 1)[..., 0].masked_fill(~valid, 2).argsort(1)
        for start in range(0, valid.shape[1], BATCH):
            index = order[:, start : start + BATCH]
            active = torch.arange(start, start + index.shape[1], device=valid.device) < counts
            leaves = [each.detach().requires_grad_() for each in parameters]
            with torch.enable_grad():
                losses = objective(leaves, index, active) * active
                gradients = torch.autograd.grad((losses.sum(1) / active.sum(1).clamp(min=1)).sum(), leaves)
            for i, (gradient, momentum) in enumerate(zip(gradients, momenta, strict=True)):
                moving = active[:, 0].view(-1, *(1,) * (gradient.ndim - 1))
                momenta[i] = torch.where(moving, MOMENTUM * momentum + gradient, momentum)
                parameters[i] = torch.where(moving, leaves[i].detach() - lr * momenta[i], leaves[i].detach())
    return parameters


def similarities(codes: Tensor, centers: Tensor) -> Tensor:
    """Return Student-t similarities, normalized over the centers: ``[k, n, d]`` and ``[k, K, d]`` to ``[k, n, K]``."""
    kernel = 1 / (1 + (codes[:, :, None] - centers[:, None]).square().sum(-1))
    return kernel / kernel.sum(-1, keepdim=True)


def k_means(rows: Tensor, valid: Tensor, clusters: int, draws: Draws) -> Tensor:
    """Return the centers ``[k, K, d]`` with the least inertia of several runs from random valid rows."""
    order = uniform(draws(), rows.shape[1], STARTS).mT.masked_fill(~valid[:, None], 2).argsort(-1)[..., :clusters]
    rows = rows[:, None].expand(-1, STARTS, -1, -1)
    centers = rows.gather(2, order[..., None].expand(*order.shape, rows.shape[3]))
    for _ in range(ITERATIONS):
        member = F.one_hot(torch.cdist(rows, centers).argmin(-1), centers.shape[2]).to(rows.dtype) * valid[:, None, :, None]
        size = member.sum(2)[..., None]
        centers = torch.where(size > 0, member.mT @ rows / size.clamp(min=1), centers)
    inertia = (torch.cdist(rows, centers).amin(-1).square() * valid[:, None]).sum(-1)
    best = inertia.argmin(-1)[:, None, None, None].expand(-1, 1, *centers.shape[2:])
    return centers.gather(1, best)[:, 0]
