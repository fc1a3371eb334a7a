"""The least numbers of every row, compiled: what :mod:`fgl_bench.engine.selection` does with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.compiled import loop, over, shares

SAMPLE = 1 << 12  # numbers of a row from which the neighbourhood of the sought one is estimated


@loop
def ranked(numbers: Any, rank: int, low: int, high: int) -> Any:
    """The number of this ``rank``, from 0, among the integers ``numbers [n]``; ``low`` and ``high`` enclose it.

    It is found by counting, which many equal numbers do not slow down.
    """
    while low < high:
        middle, below = (low >> 1) + (high >> 1) + (low & high & 1), 0
        for i in range(len(numbers)):
            below += numbers[i] <= middle
        if below > rank:
            high = middle
        else:
            low = middle + 1
    return low


@loop
def around(numbers: Any, rank: int, low: int, high: int, found: Any) -> Any:
    """Close bounds of the number of this ``rank`` among the integers ``numbers [n]``, and how many are below and between them.

    Args:
        low, high: enclose all numbers.
        found: ``[n + 1]``, where the numbers between are left; the last place is written to and never counts.
    """
    sample = numbers[:: (len(numbers) // SAMPLE) | 1].copy()  # an odd step: rows of a weight have even lengths
    guess = rank * len(sample) // len(numbers)
    slack = 3 * int(np.sqrt(guess)) + 3
    first = ranked(sample, guess - slack, low, high) if guess >= slack else low
    last = ranked(sample, guess + slack, first, high) if guess + slack < len(sample) else high
    below = between = 0
    for i in range(len(numbers)):
        below += numbers[i] < first
        between += (numbers[i] >= first) & (numbers[i] <= last)
    if not below <= rank < below + between:  # the sample misled
        first, last, below = low, high, 0
    count = 0
    for i in range(len(numbers)):  # without a branch, which would be mispredicted
        found[count] = numbers[i]
        count += (numbers[i] >= first) & (numbers[i] <= last)
    return first, last, below, count


@loop
def mark(x: Any, bits: Any, mask: Any, free: int, count: int, kept: int, flipped: int, greatest: int, first: int, last: int) -> None:
    """Rows ``first`` to ``last`` of :func:`mark_`; of the numbers' bits ``kept`` count."""
    width, value = x.shape[1], mask.dtype.type(1 - free)
    numbers, found = np.empty(width, bits.dtype), np.empty(width + 1, bits.dtype)
    for row in range(first, last):
        into = mask[row]
        for i in range(width):  # integers in the order of the numbers, or against it; what is not a number or may not be taken is last
            each = (bits[row, i] & kept) * (x[row, i] != 0)  # both zeros are equal
            each = (each ^ ((each >> 63) & greatest)) ^ flipped
            numbers[i] = each if (x[row, i] == x[row, i]) & (into[i] == free) else greatest
        low, high, below, some = around(numbers, count - 1, -greatest - 1, greatest, found)
        bound = ranked(found[:some], count - 1 - below, low, high)
        left, equal = count - below, 0
        for i in range(some):
            left -= found[i] < bound
            equal += found[i] == bound
        if bound == greatest or left < equal:
            for i in range(width):
                if numbers[i] == bound and into[i] == free:
                    into[i] = value
                    left -= 1
                    if not left:
                        break
            bound -= 1
        upto = bits.dtype.type(bound)
        for i in range(width):
            into[i] = value if numbers[i] <= upto else into[i]


def mark_(mask: Tensor, x: Tensor, count: int, free: int, magnitude: bool, descending: bool) -> None:
    """Turn ``count`` of the places of every row of ``mask`` that are ``free`` (1 or 0), where ``x`` is least or greatest.

    Of equal numbers the first are taken. A sample of a row says between which numbers the last one taken lies. Every thread has some rows.
    """
    kind = {torch.float32: torch.int32, torch.float64: torch.int64}[x.dtype]
    given, bits = (part.detach().reshape(-1, x.shape[-1]).numpy() for part in (x, x.view(kind)))
    into, greatest = mask.view(-1, x.shape[-1]).numpy(), np.iinfo(bits.dtype).max
    limits = greatest if magnitude else -1, -int(descending), greatest
    over(shares([1] * len(given)), lambda first, last: mark(given, bits, into, free, count, *limits, first, last))
