"""The least and the greatest numbers of every row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def smallest(x: Tensor, count: int) -> Tensor:
    """1 for the ``count`` least numbers of every row of ``x [..., n]``, else 0, in its type; of equal ones the first, on every device.

    ``topk`` takes any of them, and on a CPU takes several times as long for large counts.
    """
    if not 0 < count < x.shape[-1]:
        return torch.full_like(x, float(count > 0))
    if x.device.type == "cpu":
        bound = torch.from_numpy(np.partition(x.numpy(), count - 1, axis=-1)[..., count - 1 : count])
        found = torch.le(x, bound, out=torch.empty_like(x))  # as numbers: a selection by a bool mask takes ten times as long
        if (found.sum(-1, dtype=torch.float64) == count).all():
            return found
    else:
        bound = x.topk(count, largest=False, sorted=False).values.amax(-1, keepdim=True)
    less, equal = x < bound, x == bound
    return less.logical_or_(equal.logical_and_(equal.cumsum(-1) <= count - less.sum(-1, keepdim=True))).to(x.dtype)


def largest(x: Tensor, count: int) -> Tensor:
    """The same for the ``count`` greatest; ``x`` is used up."""
    return smallest(x.neg_(), count)
