"""Means over the clients that have a coordinate, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from fgl_bench.engine.compiled import loop

BLOCK = 1 << 10  # coordinates at a time, of all clients, which stay in the cache


@loop
def means(support: Any, mask: Any, models: Any, out: Any, first: int, last: int) -> None:
    """Coordinates ``first`` to ``last`` of :func:`fgl_bench.algorithms.dis_pfl.masked_mean`, summed in double precision.

    A number that is not finite reaches the clients that hear its sender; products would spread it to all.
    """
    seeds, clients, width = models.shape
    one, sums, counts = out.dtype.type(1), np.empty(BLOCK, np.float64), np.empty(BLOCK, out.dtype)
    for low in range(first, min(last, width), BLOCK):
        high = min(low + BLOCK, width)
        for s in range(seeds):
            for i in range(clients):
                sums[:] = 0
                counts[:] = 0
                for j in range(clients):
                    if support[s, i, j]:
                        numbers, there = models[s, j, low:high], mask[s, j, low:high]
                        for p in range(high - low):
                            sums[p] += numbers[p]
                        for p in range(high - low):
                            counts[p] += there[p]
                into = out[s, i, low:high]
                for p in range(high - low):
                    into[p] = out.dtype.type(sums[p]) / max(counts[p], one)
