"""Global minimum cut, and distances between short series (host arrays)."""

from __future__ import annotations

import numpy as np


def minimum_cut(weights: np.ndarray) -> np.ndarray:
    """Return one side ``[n]`` (bool, without node 0) of a minimum cut of a complete weighted graph (Stoer & Wagner, JACM 1997).

    Args:
        weights: ``[n, n]`` symmetric, non-negative, n at least 2; the diagonal is ignored. The first of equal cuts is returned.
    """
    graph = np.array(weights, dtype=np.float64)
    np.fill_diagonal(graph, 0.0)
    n = len(graph)
    merged = np.eye(n, dtype=bool)  # row v: the nodes merged into v
    left = np.arange(n)
    best, side = np.inf, merged[-1]
    while left.size > 1:
        inside, last = [left[0]], left[0]
        tied = graph[left[0]].copy()  # weight between each node and the nodes inside
        for _ in range(left.size - 1):
            outside = left[~np.isin(left, inside)]
            before, last = last, outside[np.argmax(tied[outside])]
            inside.append(last)
            tied = tied + graph[last]
        cut = graph[last, left].sum()
        if cut < best:
            best, side = cut, merged[last].copy()
        graph[before] += graph[last]
        graph[:, before] += graph[:, last]
        graph[before, before] = 0.0
        merged[before] |= merged[last]
        left = left[left != last]
    return ~side if side[0] else side


def warping_distances(series: np.ndarray) -> np.ndarray:
    """Return dynamic-time-warping distances ``[n, n]`` of ``series [n, d]``: the root of the least sum of squares on a monotone path."""
    n, length = series.shape
    cost = (series[:, None, :, None] - series[None, :, None, :]) ** 2
    total = np.full((length + 1, length + 1, n, n), np.inf)
    total[0, 0] = 0.0
    for a in range(length):
        for b in range(length):
            total[a + 1, b + 1] = cost[:, :, a, b] + np.minimum(np.minimum(total[a, b], total[a, b + 1]), total[a + 1, b])
    return np.sqrt(total[length, length])
