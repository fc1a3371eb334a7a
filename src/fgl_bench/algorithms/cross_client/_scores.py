"""GATv2's attention scores on a CPU, without the rest of the convolution, for sampling neighbors.

Sources are not padded to the same number for all replicas. Rows that were never fetched (zeros) are multiplied once. Intermediate
values of an edge's score are used while in the cache.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.cross_client._plan import Level
from fgl_bench.engine.kernels.dynamic_scores import BLOCK
from fgl_bench.engine.sparse import Edges


def drawn_scores(
    hidden: Tensor, store: Tensor, known: np.ndarray, weight: Tensor, shift: Tensor, vectors: Tensor, level: Level, slope: float
) -> Tensor:
    """Return :func:`~fgl_bench.engine.kernels.dynamic_scores.dynamic_scores` ``[H, E]`` of a convolution's edges, without autograd.

    Args:
        hidden: ``[k, own, a]``, the replicas' own sources.
        store: ``[R, a]``, remote rows.
        known: host bool, True for entries of ``level.held`` that have been fetched.
        weight, shift: ``[k, a, 2 * b]`` and ``[k, 2 * b]``, the sources' part first.
        vectors: ``[k, H, d]``, with ``H * d = b``.
    """
    (k, r, _), own, bounds, width = level.shape, level.own, level.bounds, weight.shape[2] // 2
    counts = np.concatenate([[0], np.cumsum(known)])[bounds]
    near = own + np.diff(counts) + 1  # rows of every replica: its own, known remote rows, one row of zeros
    places = _places(level, known, counts, near)
    asked = level.asked[torch.from_numpy(known)]
    rows = hidden.new_empty(int(near.max()), hidden.shape[2])
    ends = hidden.new_empty(int(near.max()) + r, width)
    scores = hidden.new_empty(len(places), vectors.shape[1])
    for i in range(k):
        first, last, size = int(level.edges.bounds[i]), int(level.edges.bounds[i + 1]), int(near[i])
        if first == last:
            continue
        rows[:own] = hidden[i]
        torch.index_select(store, 0, asked[counts[i] : counts[i + 1]], out=rows[own : size - 1])
        rows[size - 1].zero_()
        torch.addmm(shift[i, :width], rows[:size], weight[i, :, :width], out=ends[:size])
        torch.addmm(shift[i, width:], hidden[i].index_select(0, level.targets[i]), weight[i, :, width:], out=ends[size : size + r])
        _set(ends[: size + r], vectors[i], slope, places, level.edges, slice(i * r, i * r + r), scores)
    return scores.mT.contiguous()


def _set(ends: Tensor, vectors: Tensor, slope: float, places: np.ndarray, edges: Edges, targets: slice, scores: Tensor) -> None:
    """Set the scores ``scores[e]`` of the edges into one replica's targets.

    Args:
        ends: ``[n + r, b]``, the replica's n sources followed by its r targets.
        vectors: ``[H, d]``.
        places: ``[E]``, see :func:`_places`.
        targets: the replica's slice of the ``[k * r]`` targets.
        scores: ``[E, H]``, output.
    """
    first, last = (int(edges.into[v]) for v in (targets.start, targets.stop))
    most, size = max(1, BLOCK["cpu"] // ends.shape[1]), len(ends) - (targets.stop - targets.start)
    pairs = torch.stack([torch.from_numpy(places[first:last]), edges.target[first:last].int() + (size - targets.start)], dim=1)
    starts = torch.arange(0, 2 * most + 1, 2, dtype=torch.int32)
    for start in range(0, last - first, most):
        part = pairs[start : start + most]
        sums = torch.embedding_bag(ends, part.flatten(), starts[: len(part) + 1], False, 0, False, None, True)[0]
        sums = F.leaky_relu_(sums, slope).mul_(vectors.flatten())
        scores[first + start : first + start + len(part)] = sums.unflatten(1, vectors.shape).sum(-1)


def _places(level: Level, known: np.ndarray, counts: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return the position of every edge's source among the rows of its replica, ``[E]`` int32."""
    (k, _, c), own = level.shape, level.own
    holder = np.repeat(np.arange(k), np.diff(level.bounds))
    place = np.where(known, own + np.cumsum(known) - 1 - counts[holder], near[holder] - 1)
    table = np.zeros((k, c), dtype=np.int32)
    table[:, :own] = np.arange(own)
    table[holder, own + np.arange(holder.size) - level.bounds[holder]] = place
    return table.ravel()[level.edges.source.numpy()]
