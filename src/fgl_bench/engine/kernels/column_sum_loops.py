"""Sums of precomputed matrices with dropout, compiled: the same as :mod:`~fgl_bench.engine.kernels.column_sum`, in one pass over each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.derived import DerivedBlocks
from fgl_bench.engine.dropout import ALL, Masks
from fgl_bench.engine.kernels.compiled import loop, parallel_for, shares

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
def add(factors: Any, row: Any, key: Any, first: int, words: Any, threshold: int, scale: Any, out: Any) -> None:
    """Add ``factors * dropout(row)`` to ``out``, all ``[F]``; the mask's draws begin with the word ``first`` of ``key``.

    Args:
        words: ``[ceil(F / 4)]``, room for the draws.
    """
    if threshold > ALL:
        draw(key, first, words)
        draws, zero = words.view(np.int16), row.dtype.type(0)
        for f in range(len(row)):
            out[f] += factors[f] * (row[f] * scale if draws[f] >= threshold else zero)
    else:
        for f in range(len(row)):
            out[f] += factors[f] * row[f]


@loop
def sum_forward(blocks: Any, owner: Any, coefficients: Any, keys: Any, threshold: int, scale: Any, out: Any, first: int, last: int) -> None:
    """``out [k, n, F]`` gets ``sum_j c_j dropout(B_j)`` of the replicas from ``first`` to ``last``.

    Args:
        blocks: B, ``[U, J, n, F]``; ``owner [k]`` says whose.
        coefficients: c, ``[k, J, F]``.
        keys: ``[J, k]``, of the masks.
        threshold, scale: an entry stays, times scale, where its draw is at least the threshold; at the least threshold all do.
    """
    _, copies, nodes, width = blocks.shape
    zero, words = blocks.dtype.type(0), np.empty((width + 3) // 4, np.uint64)
    for b in range(first, last):
        for v in range(nodes):
            into = out[b, v]
            for f in range(width):
                into[f] = zero
            for j in range(copies):
                add(coefficients[b, j], blocks[owner[b], j, v], keys[j, b], v * len(words), words, threshold, scale, into)


@loop
def sum_backward(blocks: Any, owner: Any, gradient: Any, keys: Any, threshold: int, scale: Any, out: Any, first: int, last: int) -> None:
    """Add to ``out [k, J, F]``, zeros, the coefficients' gradient; only rows of ``gradient [k, n, F]`` that are not zero cost."""
    _, copies, nodes, width = blocks.shape
    zero, words = blocks.dtype.type(0), np.empty((width + 3) // 4, np.uint64)
    for b in range(first, last):
        for v in range(nodes):
            each, there = gradient[b, v], False
            for f in range(width):
                if each[f] != zero:
                    there = True
                    break
            if not there:
                continue
            for j in range(copies):
                add(each, blocks[owner[b], j, v], keys[j, b], v * len(words), words, threshold, scale, out[b, j])


class ColumnSum(torch.autograd.Function):
    """``sum_j c_j dropout(B_j)`` of coefficients ``[k, J, F]``, on every thread some replicas; without ``kept`` nothing is dropped."""

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, blocks: DerivedBlocks, masks: Masks | None) -> Tensor:
        k, copies, width = coefficients.shape
        masks = masks or Masks(torch.zeros(copies, k, dtype=torch.int64), ALL, 1.0)
        values = blocks.values.numpy()
        out = coefficients.new_empty(k, values.shape[2], width)
        keys, scale = masks.keys.numpy().view(np.uint64), np.asarray(masks.scale, values.dtype)[()]
        ctx.arrays, ctx.mask = (values, blocks.owner), (keys, masks.threshold, scale)
        given, into = coefficients.detach().contiguous().numpy(), out.numpy()
        parallel_for(shares([1] * k), lambda first, last: sum_forward(*ctx.arrays, given, *ctx.mask, into, first, last))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (values, owner), (k, _, width) = ctx.arrays, gradient.shape
        out = gradient.new_zeros(k, values.shape[1], width)
        given, into = gradient.contiguous().numpy(), out.numpy()
        parallel_for(shares([1] * k), lambda first, last: sum_backward(values, owner, given, *ctx.mask, into, first, last))
        return out, None, None
