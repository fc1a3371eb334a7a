"""GATv2's scores of a convolution on a CPU where nothing else is wanted of it: a draw of neighbours.

Sources are not padded to the same number for all replicas, rows that were never fetched (zeros) are multiplied once, and what an edge's
score is made of is used while it is in the cache.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.cross_client._plan import Level
from fgl_bench.engine.attention import BLOCK


def drawn_scores(
    hidden: Tensor, store: Tensor, known: np.ndarray, weight: Tensor, shift: Tensor, vectors: Tensor, level: Level, slope: float
) -> Tensor:
    """:func:`~fgl_bench.engine.attention.dynamic_scores` ``[H, E]`` of a convolution's edges, outside autograd.

    Args:
        hidden: ``[k, own, a]``, the replicas' own sources.
        store: ``[R, a]``, the rows of others.
        known: host bool, which of ``level.held`` are more than zeros.
        weight, shift: ``[k, a, 2 * b]`` and ``[k, 2 * b]``, the sources' part first.
        vectors: ``[k, H, d]``, with ``H * d = b``.
    """
    (k, r, _), own, bounds, width = level.shape, level.own, level.bounds, weight.shape[2] // 2
    counts = np.concatenate([[0], np.cumsum(known)])[bounds]
    near = own + np.diff(counts) + 1  # rows of every replica: its own, those known, one of zeros
    pairs = _pairs(level, known, counts, near)
    asked = level.asked[torch.from_numpy(known)]
    rows = hidden.new_empty(int(near.max()), hidden.shape[2])
    ends = hidden.new_empty(int(near.max()) + r, width)
    found = hidden.new_empty(len(pairs), vectors.shape[1])
    most = max(1, BLOCK["cpu"] // width)
    starts = torch.arange(0, 2 * most + 1, 2, dtype=torch.int32)
    for i in range(k):
        first, last, size = int(level.edges.bounds[i]), int(level.edges.bounds[i + 1]), int(near[i])
        if first == last:
            continue
        rows[:own] = hidden[i]
        torch.index_select(store, 0, asked[counts[i] : counts[i + 1]], out=rows[own : size - 1])
        rows[size - 1].zero_()
        torch.addmm(shift[i, :width], rows[:size], weight[i, :, :width], out=ends[:size])
        torch.addmm(shift[i, width:], hidden[i].index_select(0, level.targets[i]), weight[i, :, width:], out=ends[size : size + r])
        for start in range(first, last, most):
            end = min(start + most, last)
            sums = torch.embedding_bag(ends, pairs[start:end].flatten(), starts[: end - start + 1], False, 0, False, None, True)[0]
            sums = F.leaky_relu_(sums, slope).mul_(vectors[i].flatten())
            found[start:end] = sums.unflatten(1, (vectors.shape[1], -1)).sum(-1)
    return found.mT.contiguous()


def _pairs(level: Level, known: np.ndarray, counts: np.ndarray, near: np.ndarray) -> Tensor:
    """``[E, 2]`` int32, where source and target of every edge lie among the rows of its replica, targets behind sources."""
    (k, r, c), own = level.shape, level.own
    holder = np.repeat(np.arange(k), np.diff(level.bounds))
    place = np.where(known, own + np.cumsum(known) - 1 - counts[holder], near[holder] - 1)
    table = np.zeros((k, c), dtype=np.int32)
    table[:, :own] = np.arange(own)
    table[holder, own + np.arange(holder.size) - level.bounds[holder]] = place
    edges = level.edges
    behind = np.repeat(near - np.arange(k) * r, np.diff(edges.bounds))
    pairs = np.empty((len(behind), 2), dtype=np.int32)
    pairs[:, 0] = table.ravel()[edges.source.numpy()]
    pairs[:, 1] = edges.target.numpy() + behind
    return torch.from_numpy(pairs)
