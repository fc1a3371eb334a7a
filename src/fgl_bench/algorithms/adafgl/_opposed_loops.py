"""Attention of opposite signs pair by pair, compiled: what :class:`~fgl_bench.algorithms.adafgl._opposed.Tiles` does in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.compiled import loop, over, shares

BLOCK = 256  # nodes at a time, whose rows stay in a CPU's first-level cache


@loop
def room(unit: Any) -> Any:
    return np.empty(BLOCK, unit.dtype)  # one array each: rows of a larger one would not be known to be contiguous, nor vectorized


@loop
def dots(unit: Any, u: int, start: int, stop: int, itself: bool, raw: Any) -> None:
    """The products of node u with those from ``start`` to ``stop`` into ``raw``, from ``unit [d, n]``."""
    zero, width = unit.dtype.type(0), stop - start
    for j in range(width):
        raw[j] = zero
    for y in range(unit.shape[0]):
        each, row = unit[y, u], unit[y, start:stop]
        for j in range(width):
            raw[j] += each * row[j]
    if not itself and start <= u < stop:
        raw[u - start] = zero


@loop
def largest(unit: Any, itself: bool, out: Any, first: int, last: int) -> None:
    """The largest product of every node, ``[k, n]``, from ``unit [k, d, n]``; ``out`` is filled beforehand."""
    nodes, raw = unit.shape[2], room(unit)
    for i in range(first, last):
        for start in range(0, nodes, BLOCK):
            stop = min(start + BLOCK, nodes)
            most = out[i, start:stop]
            for u in range(nodes):
                dots(unit[i], u, start, stop, itself, raw)
                for j in range(stop - start):
                    most[j] = raw[j] if raw[j] > most[j] else most[j]


@loop
def scale(
    raw: Any, u: int, start: int, stop: int, mean: Any, above: Any, below: Any, high: Any, slope: Any, positive: Any, negative: Any
) -> None:
    """Whether a product is above the mean (1, else 0), what multiplies it, and both parts of R, of a node with a block of others."""
    zero, one = raw.dtype.type(0), raw.dtype.type(1)
    both, offset = above + below, mean * above
    for j in range(stop - start):
        high[j] = one if raw[j] > mean else zero
        slope[j] = high[j] * both - below
        positive[j] = raw[j] * slope[j] - high[j] * offset
    if start <= u < stop:
        positive[u - start] += one
    for j in range(stop - start):
        found = positive[j]
        positive[j] = zero if found <= zero else found
        negative[j] = zero if found >= zero else found


@loop
def sums_forward(
    unit: Any, values: Any, itself: bool, mean: Any, above: Any, below: Any, to_above: Any, to_below: Any, first: int, last: int
) -> None:
    """Add ``max(R, 0) values`` and ``min(R, 0) values``, ``[k, n, h]``, from ``unit [k, d, n]`` and ``values [k, h, n]``."""
    nodes, zero = unit.shape[2], unit.dtype.type(0)
    raw, high, slope, positive, negative = room(unit), room(unit), room(unit), room(unit), room(unit)
    for i in range(first, last):
        for start in range(0, nodes, BLOCK):
            stop = min(start + BLOCK, nodes)
            for u in range(nodes):
                dots(unit[i], u, start, stop, itself, raw)
                scale(raw, u, start, stop, mean[i], above[i], below[i], high, slope, positive, negative)
                for y in range(values.shape[1]):
                    row, over_mean, under = values[i, y, start:stop], zero, zero
                    for j in range(stop - start):
                        over_mean += positive[j] * row[j]
                        under += negative[j] * row[j]
                    to_above[i, u, y] += over_mean
                    to_below[i, u, y] += under


@loop
def sums_backward(
    unit: Any, values: Any, itself: bool, mean: Any, above: Any, below: Any, from_above: Any, from_below: Any,
    to_unit: Any, to_values: Any, sums: Any, first: int, last: int,
) -> None:  # fmt: skip
    """Add to the gradients of :func:`sums_forward`, ``[k, n, d]`` and ``[k, n, h]``, from those of its answers, ``[k, h, n]``.

    What reaches R_uv and R_vu is taken together. ``sums [k, 3]`` gets the halves of its products with R0, with R0 above the mean, and its
    sum above the mean.
    """
    nodes, zero, half = unit.shape[2], unit.dtype.type(0), unit.dtype.type(0.5)
    raw, high, slope, positive, negative = room(unit), room(unit), room(unit), room(unit), room(unit)
    up, down = room(unit), room(unit)
    for i in range(first, last):
        for start in range(0, nodes, BLOCK):
            stop = min(start + BLOCK, nodes)
            width = stop - start
            for u in range(nodes):
                dots(unit[i], u, start, stop, itself, raw)
                scale(raw, u, start, stop, mean[i], above[i], below[i], high, slope, positive, negative)
                for j in range(width):
                    up[j] = zero
                    down[j] = zero
                for y in range(values.shape[1]):
                    each, row = values[i, y, u], values[i, y, start:stop]
                    one, other = from_above[i, y, u], from_below[i, y, u]
                    ones, others = from_above[i, y, start:stop], from_below[i, y, start:stop]
                    total = zero
                    for j in range(width):
                        up[j] += one * row[j] + each * ones[j]
                        down[j] += other * row[j] + each * others[j]
                        total += positive[j] * ones[j] + negative[j] * others[j]
                    to_values[i, u, y] += total
                all_raw, high_raw, high_sum = zero, zero, zero
                for j in range(width):
                    gradient = up[j] if positive[j] > zero else down[j]
                    product = gradient * raw[j]
                    all_raw += product
                    high_raw += product * high[j]
                    high_sum += gradient * high[j]
                    up[j] = gradient * slope[j]
                sums[i, 0] += half * all_raw
                sums[i, 1] += half * high_raw
                sums[i, 2] += half * high_sum
                if not itself and start <= u < stop:
                    up[u - start] = zero
                for y in range(unit.shape[1]):
                    row, total = unit[i, y, start:stop], zero
                    for j in range(width):
                        total += up[j] * row[j]
                    to_unit[i, u, y] += total


class Loops:
    """As :class:`~fgl_bench.algorithms.adafgl._opposed.Tiles` where beta is 0; whole clients on every thread."""

    def __init__(self, unit: Tensor, itself: bool):
        self.unit, self.itself = unit, itself
        self.columns, self.ranges = turned(unit), shares([1] * unit.shape[0])

    def largest(self) -> Tensor:
        out = self.unit.new_full(self.unit.shape[:2], -torch.inf)
        over(self.ranges, lambda first, last: largest(self.columns, self.itself, out.numpy(), first, last))
        return out

    def sums(self, values: Tensor, scales: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        out = values.new_zeros(values.shape), values.new_zeros(values.shape)
        arrays = self.columns, turned(values), self.itself, *(each.numpy() for each in (*scales, *out))
        over(self.ranges, lambda first, last: sums_forward(*arrays, first, last))
        return out

    def gradients(self, values: Tensor, scales: tuple[Tensor, ...], to_above: Tensor, to_below: Tensor) -> tuple[Tensor, ...]:
        out = self.unit.new_zeros(self.unit.shape), values.new_zeros(values.shape), values.new_zeros(len(values), 3, dtype=torch.float64)
        arrays = (self.columns, turned(values), self.itself, *(each.numpy() for each in scales), turned(to_above), turned(to_below))
        over(self.ranges, lambda first, last: sums_backward(*arrays, *(each.numpy() for each in out), first, last))
        return *out[:2], out[2].to(values.dtype)


def turned(x: Tensor) -> Any:
    """``[k, n, d]`` as an array ``[k, d, n]``, whose rows the loops read."""
    return x.detach().mT.contiguous().numpy()
