"""Dropout in one compiled pass: what :mod:`fgl_bench.engine.dropout` does in PyTorch, without a mask in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fgl_bench.engine.compiled import loop, over, shares

# Those of engine.random_numbers, where they are signed.
_GOLDEN, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


@loop
def draw(key: Any, first: int, words: Any) -> None:
    """Fill ``words`` as :func:`fgl_bench.engine.random_numbers.uniform16` does, from its word ``first`` on."""
    start = key + np.uint64(first) * _GOLDEN
    for w in range(len(words)):
        x = start + np.uint64(w) * _GOLDEN
        x = ((x >> _SHIFTS[0]) ^ x) * _MIX_1
        x = ((x >> _SHIFTS[1]) ^ x) * _MIX_2
        words[w] = (x >> _SHIFTS[2]) ^ x


@loop
def drop(x: Any, keys: Any, threshold: int, scale: Any, out: Any, first: int, last: int) -> None:
    """``out [k, n, h]`` gets x times the masks of ``keys [k]``, for the replicas from ``first`` to ``last``."""
    _, nodes, width = x.shape
    zero, words = x.dtype.type(0), np.empty((width + 3) // 4, np.uint64)
    draws = words.view(np.int16)
    for b in range(first, last):
        for v in range(nodes):
            draw(keys[b], v * len(words), words)
            for f in range(width):
                out[b, v, f] = x[b, v, f] * (scale if draws[f] >= threshold else zero)


class Dropped(torch.autograd.Function):
    """``x [k, n, h]`` times the masks of ``key [k]`` (or one key for all), on every thread some replicas; backward draws them again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, key: Tensor, threshold: int, scale: float) -> Tensor:
        ctx.mask = key, threshold, scale
        return _dropped(x, *ctx.mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _dropped(gradient, *ctx.mask), None, None, None


def _dropped(x: Tensor, key: Tensor, threshold: int, scale: float) -> Tensor:
    x = x.detach().contiguous()
    out = torch.empty_like(x)
    given, into, keys = x.numpy(), out.numpy(), key.expand(len(x)).contiguous().numpy().view(np.uint64)
    kept = given.dtype.type(scale)
    least = np.int16(min(threshold, 32767))  # as wide as a draw; where nothing is kept, the scale is 0
    over(shares([1] * len(x)), lambda first, last: drop(given, keys, least, kept, into, first, last))
    return out
