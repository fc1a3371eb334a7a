"""The least numbers of every row, compiled: what :mod:`fgl_bench.engine.selection` does with NumPy, in three passes over a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.compiled import loop, over, shares

BINS = 1 << 16


@loop
def mark(
    x: Any, bits: Any, mask: Any, free: int, count: int, kept: int, flipped: int, greatest: int, shift: int, first: int, last: int
) -> None:
    """Rows ``first`` to ``last`` of :func:`mark_`; of the numbers' bits ``kept`` count."""
    width, value = x.shape[1], mask.dtype.type(1 - free)
    numbers, counts = np.empty(width, bits.dtype), np.empty(BINS, np.int64)
    for row in range(first, last):
        into = mask[row]
        allowed = into == free
        for i in range(width):  # integers in the order of the numbers, or against it; what is not a number or may not be taken is last
            each = (bits[row, i] & kept) * (x[row, i] != 0)  # both zeros are equal
            each = (each ^ ((each >> 63) & greatest)) ^ flipped
            numbers[i] = each if (x[row, i] == x[row, i]) & allowed[i] else greatest
        counts[:] = 0
        for i in range(width):
            counts[(numbers[i] >> shift) + BINS // 2] += 1
        place, left = 0, count
        while left > counts[place]:
            left -= counts[place]
            place += 1
        near, found = np.empty(counts[place] + 1, bits.dtype), 0
        for i in range(width):  # without a branch, which would be mispredicted
            near[found] = numbers[i]
            found += (numbers[i] >> shift) + BINS // 2 == place
        near = near[:found]
        bound = near.min()
        if bound != near.max():  # all alike take a partition long
            bound = np.partition(near, left - 1)[left - 1]
            left -= (near < bound).sum()
        for i in range(width):
            into[i] = value if numbers[i] < bound else into[i]
        for i in range(width):
            if numbers[i] == bound and allowed[i]:
                into[i] = value
                left -= 1
                if not left:
                    break


def mark_(mask: Tensor, x: Tensor, count: int, free: int, magnitude: bool, descending: bool) -> None:
    """Turn ``count`` of the places of every row of ``mask`` that are ``free`` (1 or 0), where ``x`` is least or greatest.

    Of equal numbers the first are taken. Numbers are counted by their first sixteen bits, then sought among those that share them. Every
    thread has some rows.
    """
    kind = {torch.float32: torch.int32, torch.float64: torch.int64}[x.dtype]
    given, bits = (part.detach().reshape(-1, x.shape[-1]).numpy() for part in (x, x.view(kind)))
    into, greatest = mask.view(-1, x.shape[-1]).numpy(), np.iinfo(bits.dtype).max
    limits = greatest if magnitude else -1, -int(descending), greatest, bits.itemsize * 8 - 16
    over(shares([1] * len(given)), lambda first, last: mark(given, bits, into, free, count, *limits, first, last))
