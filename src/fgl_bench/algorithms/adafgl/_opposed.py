"""Attention of opposite signs over all pairs of a client's nodes, in tiles to avoid n x n matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Pairs in a tile: a few tiles fit in a CPU's second-level cache; a GPU needs few launches.
TILE = {"cpu": 2**17, "cuda": 2**25}


def attend(unit: Tensor, values: Tensor, similar: Tensor | None, beta: float, count: Tensor, itself: bool = True) -> tuple[Tensor, Tensor]:
    """Return ``max(R, 0) values`` and ``min(R, 0) values``, differentiable in ``unit`` and ``values``.

    With ``R0 = beta B + (1 - beta) U U^T`` and m its mean over all pairs of a client's nodes: ``R = (R0 - m) / (max R0 - m)`` where R0 is
    above m and ``-R0 / m`` elsewhere (0 where the denominator is below 1e-6), plus I. Tiles of R are computed on use, and again
    in backward. Mean and maximum have gradients too (for a tie only one of the largest pairs).

    Args:
        unit: U, ``[k, n, d]``, rows of length one or zero; zero in padding.
        values: ``[k, n, h]``, zero in padding.
        similar: B, ``[k, n, n]`` bool, symmetric, False in padding; None where beta is 0.
        count: ``[k]`` real nodes.
        itself: include a node's similarity to itself in R0; else its diagonal is zero. The mean is over n x n entries in both cases.

    Returns:
        Two ``[k, n, h]``; rows of padding have no meaning.
    """
    assert similar is not None or not beta
    return _Attend.apply(unit, values, similar if beta else None, beta, count, itself)


def tiles(clients: int, nodes: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Yield clients and rows of every tile: several whole clients, or some rows of one client."""
    whole, rows = max(1, most // max(nodes * nodes, 1)), max(1, min(nodes, most // max(nodes, 1)))
    for client in range(0, clients, whole):
        for row in range(0, nodes, rows):
            yield slice(client, client + whole), slice(row, min(row + rows, nodes))


class Tiles:
    """Passes over R with PyTorch operations, some rows at a time.

    Since R is symmetric, a tile of rows is also a tile of columns, and narrow products from that side are several times faster.
    """

    def __init__(self, unit: Tensor, similar: Tensor | None, beta: float, itself: bool):
        self.unit, self.similar, self.beta, self.itself = unit, similar, beta, itself
        self.tiles = list(tiles(unit.shape[0], unit.shape[1], TILE.get(unit.device.type, 2**25)))

    def raw(self, clients: slice, rows: slice) -> Tensor:
        left, right = self.unit[clients, rows], self.unit[clients].mT
        if self.similar is None:
            products = torch.bmm(left, right)
        else:
            products = torch.baddbmm(self.similar[clients, rows].to(left.dtype), left, right, beta=self.beta, alpha=1 - self.beta)
        if not self.itself:
            products[:, :, rows].diagonal(dim1=1, dim2=2).zero_()
        return products

    def scaled(self, raw: Tensor, clients: slice, rows: slice, scales: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Return 1 where R0 is above its mean (else 0), the factor of R0, and R."""
        mean, above, below = (each[clients, None, None] for each in scales)
        # Comparisons as floats: on a CPU a selection by booleans takes as long as ten of these operations.
        high = torch.gt(raw, mean, out=torch.empty_like(raw))
        slope = (high * (above + below)).sub_(below)
        attention = (raw * slope).addcmul_(high, mean * above, value=-1)
        attention[:, :, rows].diagonal(dim1=1, dim2=2).add_(1)
        return high, slope, attention

    def largest(self) -> Tensor:
        """Return the largest R0 of every node, ``[k, n]``."""
        out = self.unit.new_empty(self.unit.shape[:2])
        for clients, rows in self.tiles:
            out[clients, rows] = self.raw(clients, rows).amax(2)
        return out

    def sums(self, values: Tensor, scales: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the result of :func:`attend`, given the mean of R0 and its scales above and below, ``[k]`` each."""
        above, below = (values.new_zeros(values.mT.shape) for _ in range(2))  # not zeros_like, which keeps the transposed strides
        for clients, rows in self.tiles:
            _, _, attention = self.scaled(self.raw(clients, rows), clients, rows, scales)
            here = values[clients, rows].mT
            above[clients].baddbmm_(here, attention.clamp(min=0))
            below[clients].baddbmm_(here, attention.clamp_(max=0))
        return above.mT.contiguous(), below.mT.contiguous()

    def gradients(self, values: Tensor, scales: tuple[Tensor, ...], to_above: Tensor, to_below: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of the unit rows (up to mean, maximum and a factor ``1 - beta``) and of the values.

        Also return ``[k, 3]``: with G the gradient of R, the sums of G R0 over all pairs and over pairs above the mean, and of G over
        the latter.
        """
        to_unit, to_values = (each.new_zeros(each.mT.shape) for each in (self.unit, values))
        sums = values.new_zeros(3, len(values))
        # The gradients of R_uv and R_vu in one product.
        up, down = (torch.cat([to, values], 2) for to in (to_above, to_below))
        turned = [torch.cat([values, to], 2).mT for to in (to_above, to_below)]
        for clients, rows in self.tiles:
            raw = self.raw(clients, rows)
            high, slope, attention = self.scaled(raw, clients, rows, scales)
            positive = torch.gt(attention, 0, out=torch.empty_like(attention))
            through = [torch.bmm(left[clients, rows], right[clients]) for left, right in zip((down, up), turned[::-1], strict=True)]
            gradient = torch.lerp(through[0], through[1], positive)
            to_values[clients].baddbmm_(to_above[clients, rows].mT, attention.clamp(min=0))
            to_values[clients].baddbmm_(to_below[clients, rows].mT, attention.clamp_(max=0))
            sums[0, clients] += raw.mul_(gradient).sum((1, 2)) / 2
            sums[1, clients] += raw.mul_(high).sum((1, 2)) / 2
            sums[2, clients] += high.mul_(gradient).sum((1, 2)) / 2
            gradient.mul_(slope)
            if not self.itself:
                gradient[:, :, rows].diagonal(dim1=1, dim2=2).zero_()
            to_unit[clients].baddbmm_(self.unit[clients, rows].mT, gradient)
        return to_unit.mT.contiguous(), to_values.mT.contiguous(), sums.mT


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, unit: Tensor, values: Tensor, similar: Tensor | None, beta: float, count: Tensor, itself: bool
    ) -> tuple[Tensor, Tensor]:
        pairs = Tiles(unit, similar, beta, itself)
        largest = pairs.largest()
        each = count.to(unit.dtype).square().clamp(min=1)
        total = unit.sum(1).square().sum(1)
        if not itself:
            total = total - unit.square().sum((1, 2))
        mean = (1 - beta) * total / each
        if similar is not None:
            mean = mean + beta * similar.sum((1, 2), dtype=mean.dtype) / each
        scales = (mean, _reciprocal(largest.amax(1) - mean), _reciprocal(mean))
        ctx.save_for_backward(unit, values, similar, each, largest, *scales)
        ctx.beta, ctx.itself = beta, itself
        return pairs.sums(values, scales)

    @staticmethod
    def backward(ctx: Any, to_above: Tensor, to_below: Tensor) -> tuple[Tensor | None, ...]:
        unit, values, similar, each, largest, *scales = ctx.saved_tensors
        (mean, above, below), share = scales, 1 - ctx.beta
        pairs = Tiles(unit, similar, ctx.beta, ctx.itself)
        to_unit, to_values, sums = pairs.gradients(values, tuple(scales), to_above, to_below)
        all_raw, high_raw, high_sum = sums.unbind(1)
        # R's scales are 1 / (max - m) above the mean and 1 / m below it.
        to_largest = -above.square() * (high_raw - mean * high_sum)
        to_mean = -above * high_sum - to_largest + below.square() * (all_raw - high_raw)
        summed = unit.sum(1, keepdim=True)
        to_unit += (2 * to_mean / each)[:, None, None] * (summed if ctx.itself else summed - unit)
        everyone, row = torch.arange(len(unit), device=unit.device), largest.argmax(1)
        one = unit[everyone, row]
        reached = share * torch.bmm(unit, one[:, :, None])[..., 0]
        if ctx.beta:
            reached = reached + ctx.beta * similar[everyone, row].to(reached.dtype)
        if not ctx.itself:
            reached.scatter_(1, row[:, None], 0)  # indexing would copy the zero from the host and synchronize a GPU
        column = reached.argmax(1)
        if not ctx.itself:  # the maximum may be the diagonal's zero
            to_largest = to_largest * (column != row)
        to_unit.index_put_((everyone, row), to_largest[:, None] * unit[everyone, column], accumulate=True)
        to_unit.index_put_((everyone, column), to_largest[:, None] * one, accumulate=True)
        return to_unit.mul_(share), to_values, None, None, None, None


def _reciprocal(x: Tensor) -> Tensor:
    defined = x.abs() > 1e-6
    return torch.where(defined, 1 / torch.where(defined, x, 1.0), 0.0)
