"""Loops that numba compiles, where the extra ``compiled`` is installed; PyTorch's operations do the same elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

# Sums in another order, and products that are added without being rounded. Infinity and what is not a number stay what they are.
LENIENT = {"nsz", "arcp", "contract", "reassoc"}


@cache
def installed() -> bool:
    return find_spec("numba") is not None


def compiles(x: Tensor) -> bool:
    """Return True if compiled loops support ``x``: on a CPU, in single or double precision."""
    return installed() and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


def loop(function: Callable[..., Any]) -> Any:
    """``function``, compiled at its first call and then kept on disk; it runs without the interpreter's lock."""
    import numba

    return numba.njit(fastmath=LENIENT, nogil=True, error_model="numpy", cache=True)(function)


def parallel_for(parts: Sequence[tuple[int, int]], function: Callable[[int, int], None]) -> None:
    """``function(first, last)`` for every range, side by side on torch's threads."""
    if len(parts) < 2:
        for part in parts:
            function(*part)
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(function, *part) for part in parts]:
            done.result()


def shares(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """As many ranges of ``sizes`` as torch has threads, of about equal sums; no range is empty."""
    threads, total, ranges, first, so_far = torch.get_num_threads(), sum(sizes), list[tuple[int, int]](), 0, 0
    for number, size in enumerate(sizes, 1):
        so_far += size
        if number == len(sizes) or (len(ranges) + 1 < threads and so_far * threads >= total * (len(ranges) + 1)):
            ranges.append((first, number))
            first = number
    return ranges
