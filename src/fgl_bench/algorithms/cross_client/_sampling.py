"""Mini-batches of nodes, and sampling of their neighbors.

Neighbors are drawn without replacement, with probabilities proportional to the exponentials of their scores.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.random_numbers import GOLDEN, fractions, mix


def gumbel(key: Tensor, number: Tensor, dtype: torch.dtype) -> Tensor:
    """Return standard Gumbel draws ``[E]``, each a pure function of its key and number (both ``[E]`` int64)."""
    uniform = fractions(mix(mix(key) + number * GOLDEN)) + 2.0**-54
    return -torch.log(-torch.log(uniform)).to(dtype)


def largest(keys: Tensor, group: Tensor, limit: Tensor | int, among: Tensor | None = None) -> Tensor:
    """Return True for items among the ``limit`` (a number, or ``[E]``) largest ``keys`` of their group, ``[E]`` bool.

    The largest of scores plus Gumbel noise are a sample without replacement with probabilities softmax(scores) (Kool et al., ICML 2019).

    Args:
        among: ``[E]`` bool, the candidates; other items are not chosen.
    """
    if among is None:
        among = torch.ones_like(group, dtype=torch.bool)
    if not keys.numel():
        return among
    if keys.device.type == "cpu":
        limits = limit.numpy() if isinstance(limit, Tensor) else np.broadcast_to(limit, keys.shape)
        return torch.from_numpy(_largest(keys.numpy(), group.numpy(), limits, np.flatnonzero(among.numpy())))
    order = torch.argsort(keys, descending=True, stable=True)
    group = group * 2 + ~among  # other items form separate groups
    order = order[torch.argsort(group[order], stable=True)]
    sorted_group = group[order]
    position = torch.arange(keys.numel(), device=keys.device)
    begins = torch.ones_like(sorted_group, dtype=torch.bool)
    begins[1:] = sorted_group[1:] != sorted_group[:-1]
    first = torch.cummax(torch.where(begins, position, 0), 0).values
    rank = torch.empty_like(position).scatter_(0, order, position - first)
    return among & (rank < limit)


def _largest(keys: np.ndarray, group: np.ndarray, limit: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return :func:`largest` on the host for the items numbered ``among``; groups within the limit are not sorted."""
    chosen = np.zeros(keys.size, dtype=bool)
    chosen[among] = True
    above = among[np.bincount(group[among])[group[among]] > limit[among]]
    selected = _within(keys[above], group[above], limit[above])
    if selected is not None:
        chosen[above] = selected
        return chosen
    ordered = above[np.lexsort((-keys[above], group[above]))]
    sorted_group, position = group[ordered], np.arange(ordered.size)
    begins = np.ones(ordered.size, dtype=bool)
    begins[1:] = sorted_group[1:] != sorted_group[:-1]
    first = np.maximum.accumulate(np.where(begins, position, 0))
    chosen[ordered] = position - first < limit[ordered]
    return chosen


def _within(keys: np.ndarray, group: np.ndarray, limit: np.ndarray) -> np.ndarray | None:
    """Return the chosen items of groups larger than their limit; None if one sort of 64-bit numbers does not suffice.

    An item's number has the group in its high bits and the key in its low bits, in descending order. Sorting values is many times
    faster than an argsort by two keys.
    """
    if keys.dtype != np.float32 or not keys.size or np.isnan(keys).any() or limit.min() < 1:
        return None
    bits = (keys + np.float32(0)).view(np.int32).astype(np.int64)  # -0 becomes 0
    rising = np.where(bits < 0, -(2**31) - 1 - bits, bits)
    numbers = (group.astype(np.int64) << 32) + (2**31 - 1 - rising)
    ordered, size, most = np.sort(numbers), np.bincount(group), np.zeros(int(group.max()) + 1, dtype=np.int64)
    most[group] = limit
    last = (np.cumsum(size) - size + most - 1).clip(0)
    within = numbers <= ordered[last][group]
    # Equal keys at the limit: their order needs a full sort.
    return within if np.count_nonzero(within) == most.sum() else None


def cut(draws: np.ndarray, training: np.ndarray, replica: np.ndarray, sizes: np.ndarray, batches: int) -> np.ndarray:
    """Return the mini-batch ``[T]`` of every node: each replica's training nodes in order of draws, cut evenly; -1 for other nodes.

    Args:
        draws, training, replica: ``[T]``, replica by replica.
        sizes: training nodes of every replica.
    """
    order = np.lexsort((draws, ~training, replica))
    first = np.searchsorted(replica, np.arange(sizes.size))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size) - first[replica[order]]
    return np.where(training, rank * batches // np.maximum(sizes, 1)[replica], -1)
