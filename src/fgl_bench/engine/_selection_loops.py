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
    x: Any,
    bits: Any,
    flags: Any,
    free: int,
    count: int,
    kept: int,
    flipped: int,
    greatest: int,
    shift: int,
    out: Any,
    first: int,
    last: int,
) -> None:
    """Rows ``first`` to ``last`` of :func:`marked`; numbers with the flag ``free`` may be taken, and of their bits ``kept`` count."""
    width, one = x.shape[1], out.dtype.type(1)
    numbers, counts = np.empty(width, bits.dtype), np.empty(BINS, np.int64)
    for row in range(first, last):
        allowed = np.ascontiguousarray(flags[row]) == free
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
            out[row, i] = one if numbers[i] < bound else 0
        for i in range(width):
            if numbers[i] == bound and allowed[i]:
                out[row, i] = one
                left -= 1
                if not left:
                    break


def marked(x: Tensor, count: int, flags: Tensor, taken: bool, magnitude: bool, descending: bool) -> Tensor:
    """As :func:`fgl_bench.engine.selection.smallest` or, ``descending``, ``largest``; on every thread some rows.

    Numbers are counted by their first sixteen bits, then sought among those that share them.

    Args:
        flags: ``among``, or, ``taken``, what that argument is.
    """
    kind = {torch.float32: torch.int32, torch.float64: torch.int64}[x.dtype]
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    given, bits, chosen, into = (part.detach().reshape(-1, x.shape[-1]).numpy() for part in (x, x.view(kind), flags, out))
    greatest = np.iinfo(bits.dtype).max
    limits = greatest if magnitude else -1, -int(descending), greatest, bits.itemsize * 8 - 16
    over(shares([1] * len(given)), lambda first, last: mark(given, bits, chosen, int(not taken), count, *limits, into, first, last))
    return out
