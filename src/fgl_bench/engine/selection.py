"""The least and the greatest numbers of every row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.compiled import LARGE, compiles


def smallest(x: Tensor, count: int, among: Tensor | None = None, *, taken: Tensor | None = None, magnitude: bool = False) -> Tensor:
    """1 for the ``count`` least numbers of every row of ``x [..., n]``, else 0, in its type; of equal ones the first, on every device.

    ``topk`` takes any of them. On a CPU it and a sort take several times as long for large counts.

    Args:
        count: for every row.
        among: 1 where a number may be taken, ``count`` or more in a row, else 0; in the type of x. None means everywhere.
        taken: in the place of ``among``, 1 where a number may not be taken.
        magnitude: numbers count without their signs.
    """
    return _marked(x, count, among, taken, magnitude, descending=False)


def largest(x: Tensor, count: int, among: Tensor | None = None, *, taken: Tensor | None = None, magnitude: bool = False) -> Tensor:
    """The same for the ``count`` greatest."""
    return _marked(x, count, among, taken, magnitude, descending=True)


def _marked(x: Tensor, count: int, among: Tensor | None, taken: Tensor | None, magnitude: bool, descending: bool) -> Tensor:
    if not 0 < count < x.shape[-1]:
        return torch.full_like(x, float(count > 0))
    if compiles(x) and x.numel() >= LARGE:
        from fgl_bench.engine._selection_loops import marked

        flags = taken if taken is not None else torch.ones_like(x) if among is None else among
        return marked(x, count, flags, taken is not None, magnitude, descending)
    x = x.abs() if magnitude else x
    x = -x if descending else x
    among = among if taken is None else 1 - taken
    if among is not None:
        x = among.reciprocal().sub_(1).add_(x)  # infinite where nothing may be taken
    if x.device.type == "cpu":
        return _smallest_on_cpu(x, count)
    return torch.zeros_like(x).scatter_(-1, x.argsort(dim=-1, stable=True)[..., :count], 1)


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
