"""Which of a node's neighbours take part: drawn without replacement, in proportion to the exponentials of their scores."""

from __future__ import annotations

import torch
from torch import Tensor

from fgl_bench.engine.dropout import GOLDEN, mix
from fgl_bench.engine.noise import fractions


def gumbel(key: Tensor, number: Tensor, dtype: torch.dtype) -> Tensor:
    """Standard Gumbel draws ``[E]``, each a pure function of its key and number (both ``[E]`` int64)."""
    uniform = fractions(mix(mix(key) + number * GOLDEN)) + 2.0**-54
    return -torch.log(-torch.log(uniform)).to(dtype)


def largest(keys: Tensor, group: Tensor, limit: Tensor | int) -> Tensor:
    """Whether each of E items is among the ``limit`` (a number, or ``[E]``) largest ``keys`` of its group, ``[E]`` bool.

    The largest of scores plus Gumbel noise are a draw without replacement with probabilities softmax(scores) (Kool et al., ICML 2019).
    """
    if not keys.numel():
        return torch.zeros_like(group, dtype=torch.bool)
    order = torch.argsort(keys, descending=True, stable=True)
    order = order[torch.argsort(group[order], stable=True)]
    sorted_group = group[order]
    place = torch.arange(keys.numel(), device=keys.device)
    begins = torch.ones_like(sorted_group, dtype=torch.bool)
    begins[1:] = sorted_group[1:] != sorted_group[:-1]
    first = torch.cummax(torch.where(begins, place, 0), 0).values
    rank = torch.empty_like(place).scatter_(0, order, place - first)
    return rank < limit
