"""Products of a convolution on a CPU, replica by replica.

Padding of remote rows is not multiplied, and rows are used while they are in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._plan import Level


def sides(
    hidden: Tensor, store: Tensor | None, weight: Tensor, shift: Tensor | None, level: Level, parts: int
) -> tuple[Tensor, Tensor | None]:
    """Return products of the sources and, with two ``parts``, of the targets: rows times a part of the weight, plus its shift.

    Args:
        hidden: ``[k, own, a]``, the replicas' own sources.
        store: ``[R, a]``, remote rows without gradient; None if the level uses none.
        weight: ``[k, a, parts * b]``.
        shift: ``[k, parts * b]``, or None.

    Returns:
        ``[k, c, b]`` and ``[k, r, b]``; zeros in padding.
    """
    return _Sides.apply(hidden, weight, shift, store, level, parts)


def _sources(hidden: Tensor, store: Tensor | None, level: Level, i: int) -> Tensor:
    """Return the source rows of replica i: its own, then remote rows."""
    first, last = int(level.bounds[i]), int(level.bounds[i + 1])
    if store is None or first == last:
        return hidden[i]
    rows = hidden.new_empty(level.own + last - first, hidden.shape[2])
    rows[: level.own] = hidden[i]
    torch.index_select(store, 0, level.asked[first:last], out=rows[level.own :])
    return rows


def _times(rows: Tensor, weight: Tensor, shift: Tensor | None, out: Tensor) -> None:
    if shift is None:
        torch.mm(rows, weight, out=out)
    else:
        torch.addmm(shift, rows, weight, out=out)


class _Sides(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, shift: Tensor | None, store: Tensor | None, level: Level, parts: int
    ) -> tuple[Tensor, Tensor | None]:
        (k, r, c), width = level.shape, weight.shape[2] // parts
        near = hidden.new_zeros(k, c, width)
        mine = hidden.new_zeros(k, r, width) if parts > 1 else None
        saved = []
        for i in range(k):
            rows = _sources(hidden, store, level, i)
            bias = None if shift is None else shift[i]
            _times(rows, weight[i, :, :width], None if bias is None else bias[:width], near[i, : len(rows)])
            if mine is not None:
                _times(hidden[i].index_select(0, level.targets[i]), weight[i, :, width:], None if bias is None else bias[width:], mine[i])
            if ctx.needs_input_grad[1]:
                saved.append(rows)
        ctx.level, ctx.width, ctx.shifted, ctx.rows = level, width, shift is not None, saved
        ctx.save_for_backward(hidden, weight)
        return near, mine

    @staticmethod
    def backward(ctx: Any, near: Tensor, mine: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        (hidden, weight), level, width = ctx.saved_tensors, ctx.level, ctx.width
        to_hidden, to_weight = torch.empty_like(hidden), torch.empty_like(weight)
        for i, rows in enumerate(ctx.rows):
            sent = near[i, : len(rows)]
            torch.mm(rows.mT, sent, out=to_weight[i, :, :width])
            torch.mm(sent[: level.own], weight[i, :, :width].mT, out=to_hidden[i])
            if mine is not None:
                torch.mm(hidden[i].index_select(0, level.targets[i]).mT, mine[i], out=to_weight[i, :, width:])
                to_hidden[i].index_add_(0, level.targets[i], mine[i] @ weight[i, :, width:].mT)
        to_shift = None
        if ctx.shifted:
            to_shift = torch.cat([side.sum(1) for side in (near, mine) if side is not None], 1)
        return to_hidden, to_weight, to_shift, None, None, None
