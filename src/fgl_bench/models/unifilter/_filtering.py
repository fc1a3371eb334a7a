"""Learned sums of precomputed matrices, times a weight: the first layer of a network behind a filter with scalar coefficients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.derived import Derived, DerivedBlocks


class _Filtered(torch.autograd.Function):
    """``(sum_j c_j B_j) W``: summing first reads every B once and multiplies once, where ``sum_j c_j (B_j W)`` multiplies J times.

    Inside, replicas of one client lie side by side (``[U, S]`` for U clients and S replicas of each), so that B is read once for
    all of them.
    """

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, weight: Tensor, blocks: DerivedBlocks, batch: Batch, build: Derived) -> Tensor:
        values, times = _shared(blocks)
        summed = _sum(values, _gather(coefficients, times))
        ctx.save_for_backward(summed, weight)
        ctx.values, ctx.times, ctx.batch, ctx.build = values, times, batch, build
        return _scatter(torch.bmm(summed, _gather(weight, times)), times)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (summed, weight), values, times, batch = ctx.saved_tensors, ctx.values, ctx.times, ctx.batch
        reached = gradient.is_cuda or _reaches(gradient, ~batch.train)
        gradient = _gather(gradient, times)
        if not reached and (rows := _training_rows(batch, ctx.build, times)) is not None:
            # Most objectives depend on training nodes only, so the other rows of B are not read.
            values, index, there = rows
            gradient = torch.take_along_dim(gradient, index[..., None], 1) * there[..., None]
            summed = torch.take_along_dim(summed, index[..., None], 1)
        to_weight = _scatter(torch.bmm(summed.mT, gradient), times)
        spread = torch.bmm(gradient, _gather(weight, times).mT)
        unique, copies, nodes, width = values.shape
        to_coefficients = torch.bmm(spread.view(unique, -1, nodes * width), values.view(unique, copies, nodes * width).mT)
        return _scatter(to_coefficients.flatten(0, 1), times), to_weight, None, None, None


def filtered(batch: Batch, build: Derived, coefficients: Tensor, weight: Tensor) -> Tensor:
    """Return ``(sum_j c_j B_j) W`` of every replica, with the matrices B that ``build`` computes for its client.

    Args:
        coefficients: c, ``[k, J]``.
        weight: W, ``[k, F, h]``.

    Returns:
        ``[k, n, h]``.
    """
    blocks, kind = batch.derived(build), weight.dtype
    held = blocks.values.dtype
    return _Filtered.apply(coefficients.to(held), weight.to(held), blocks, batch, build).to(kind)


def _shared(blocks: DerivedBlocks) -> tuple[Tensor, int]:
    """Return ``[U, J, n, F]`` and the number of replicas per client; a copy unless replicas are in seed-major order."""
    return (blocks.values, blocks.times) if blocks.times else (blocks.copied, 1)


def _gather(x: Tensor, times: int) -> Tensor:
    """Reorder ``[S * U, ...]`` to ``[U * S, ...]``."""
    return x if times == 1 else x.unflatten(0, (times, -1)).transpose(0, 1).flatten(0, 1)


def _scatter(x: Tensor, times: int) -> Tensor:
    return x if times == 1 else x.unflatten(0, (-1, times)).transpose(0, 1).flatten(0, 1)


def _sum(values: Tensor, coefficients: Tensor) -> Tensor:
    unique, copies, nodes, width = values.shape
    return torch.bmm(coefficients.view(unique, -1, copies), values.view(unique, copies, nodes * width)).view(-1, nodes, width)


def _reaches(gradient: Tensor, nodes: Tensor) -> bool:
    """Return True if ``gradient [k, n, h]`` has a nonzero row among ``nodes [k, n]`` (bool)."""
    return bool((gradient.ne(0).any(-1) & nodes).any())


def _training_rows(batch: Batch, build: Derived, times: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return B at training nodes ``[U, J, t, F]``, their indices ``[U * S, t]`` and a mask of real ones ``[U * S, t]``; cached.

    None if replicas of one client train on different nodes.
    """
    blocks = batch.derived(build)
    if blocks.training_rows is None:
        train = batch.train[: len(batch.train) // times]
        if not torch.equal(batch.train, train.repeat(times, 1)):
            return None
        most = max(1, int(batch.num_train.max()))
        order = train.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        unique = blocks if times == 1 else DerivedBlocks(blocks.values, range(len(order)))
        index, there = (each.repeat_interleave(times, 0) for each in (order, torch.take_along_dim(train, order, 1)))
        blocks.training_rows = (unique.take(order).values.contiguous(), index, there)
    return blocks.training_rows
