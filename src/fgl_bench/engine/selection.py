"""The least and the greatest numbers of every row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def largest(x: Tensor, count: int) -> Tensor:
    """1 for the ``count`` greatest numbers of every row of ``x [..., n]``, else 0, in its type; of equal ones the first, on every device.

    ``topk`` takes any of them. On a CPU it and a sort take several times as long for large counts.
    """
    return _mark_(torch.zeros_like(x, memory_format=torch.contiguous_format), x, count, 0, magnitude=False, descending=True)


def drop_(mask: Tensor, x: Tensor, count: int) -> Tensor:
    """Set ``count`` ones of every row of ``mask [..., n]`` to 0, where ``x`` is least in magnitude; each row has at least ``count``."""
    return _mark_(mask, x, count, 1, magnitude=True, descending=False)


def grow_(mask: Tensor, x: Tensor, count: int) -> Tensor:
    """Set ``count`` zeros of every row of ``mask [..., n]`` to 1, where ``x`` is greatest in magnitude; each row has at least ``count``."""
    return _mark_(mask, x, count, 0, magnitude=True, descending=True)


def _mark_(mask: Tensor, x: Tensor, count: int, free: int, magnitude: bool, descending: bool) -> Tensor:
    """Turn ``count`` of the places of every row of ``mask`` that are ``free``; of equal ones the first, on every device."""
    if count < 1:
        return mask
    x = x.abs() if magnitude else x
    x = -x if descending else x
    x = (mask if free else 1 - mask).reciprocal().sub_(1).add_(x)  # infinite where nothing may be taken
    if x.device.type == "cpu":
        taken = _smallest_on_cpu(x, count)
    else:
        taken = torch.zeros_like(x).scatter_(-1, x.argsort(dim=-1, stable=True)[..., :count], 1)
    return mask.sub_(taken) if free else mask.add_(taken)


def _smallest_on_cpu(x: Tensor, count: int) -> Tensor:
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    bound = x.new_tensor([_at(row, count - 1) for row in rows.numpy()]).view(*x.shape[:-1], 1)
    # As numbers: a selection by a bool mask takes ten times as long.
    found = torch.le(x, bound, out=torch.empty_like(x))
    exact = None if x.shape[-1] < 2**24 else torch.float64  # single precision counts so far
    over = (found.sum(-1, dtype=exact) - count).long()
    for row in over.nonzero().unbind(0):
        place = tuple(row.tolist())
        equal = np.flatnonzero(x[place].numpy() == bound[place].item())
        found[place].numpy()[equal[len(equal) - int(over[place]) :]] = 0
    return found


def _at(row: np.ndarray, rank: int) -> float:
    """The number of this rank in ``row``, from 0: counted by the first sixteen bits, then sought among those that share them.

    Weights and gradients have many equal numbers, with which partitions take twice as long as without.
    """
    bits = row.itemsize * 8
    number = row.view(f"i{row.itemsize}")
    number = number ^ ((number >> (bits - 1)) & np.iinfo(number.dtype).max)  # integers in the order of the numbers
    first = (number >> (bits - 16)) + (1 << 15)
    below = np.bincount(first, minlength=1 << 16).cumsum()
    place = int(below.searchsorted(rank, side="right"))
    rank -= int(below[place - 1]) if place else 0
    return float(np.partition(row[first == place], rank)[rank])
