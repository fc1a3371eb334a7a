"""The rows of sparse blocks as bags of entries, whose sums are sparse products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.transfer import put

CACHE = 1 << 19  # bytes of a block's rows that stay in a core's cache
LEAST = 32  # columns of the narrowest pass
OFTEN = 16  # reads of a row from which copying it pays


class Bags:
    """The rows of k sparse blocks as bags of (column, value), ready for ``embedding_bag``.

    Attributes:
        columns: ``[nnz]`` int32 column of every entry, local to its block.
        values: ``[nnz]``.
        counts: ``[k, r]`` int64 entries per row.
        bounds: host ``[k + 1]``, where each block's entries start.
    """

    rebuilt = ("_ready",)

    def __init__(self, columns: Tensor, values: Tensor, counts: Tensor, bounds: np.ndarray):
        self.columns, self.values, self.counts, self.bounds = columns, values, counts, bounds
        self._ready: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, blocks: Sequence[sp.csr_matrix], rows: int, dtype: torch.dtype, device: torch.device) -> Bags:
        counts = np.zeros((len(blocks), rows), dtype=np.int64)
        for i, block in enumerate(blocks):
            counts[i, : block.shape[0]] = np.diff(block.indptr)
        bounds = np.concatenate([[0], np.cumsum(counts.sum(1))])
        columns = np.concatenate([block.indices for block in blocks]).astype(np.int32, copy=False)
        values = np.concatenate([block.data for block in blocks])
        return cls(
            torch.from_numpy(columns).to(device), torch.from_numpy(values).to(device, dtype), torch.from_numpy(counts).to(device), bounds
        )

    def select(self, rows: Sequence[int]) -> Bags:
        sizes, of = np.diff(self.bounds)[list(rows)], runs(rows)
        return Bags(
            torch.cat([self.columns[self.bounds[low] : self.bounds[high]] for low, high in of]),
            torch.cat([self.values[self.bounds[low] : self.bounds[high]] for low, high in of]),
            torch.cat([self.counts[low:high] for low, high in of]),
            np.concatenate([[0], np.cumsum(sizes)]),
        )

    def to(self, device: torch.device) -> Bags:
        return Bags(self.columns.to(device), self.values.to(device), self.counts.to(device), self.bounds)

    def same(self, other: Bags) -> bool:
        """Whether the other has the same entries in the same order."""
        return all(torch.equal(getattr(self, name), getattr(other, name)) for name in ("counts", "columns", "values"))

    def reduce(self, source: Tensor, stride: int, lead: int, pad: int) -> Tensor:
        """Sum of ``value * source[block * stride + column]`` over every bag.

        Args:
            source: ``[*, h]`` rows of all blocks.
            stride: rows of ``source`` from one block to the next.
            lead, pad: empty output rows before and after each block's own.

        Returns:
            ``[k * (lead + r + pad), h]``.
        """
        key, k = (stride, lead, pad), len(self.counts)
        if key not in self._ready:
            # The narrow type halves the traffic of the indices; both must be of one type.
            narrow = torch.int32 if max(k * stride, self.values.numel()) < 2**31 else torch.int64
            columns = self.columns.to(narrow)
            if k > 1:
                starts, sizes = torch.arange(k, dtype=narrow, device=source.device) * stride, put(np.diff(self.bounds), source.device)
                columns = columns + torch.repeat_interleave(starts, sizes, output_size=self.values.numel())
            counts = F.pad(self.counts, (lead, pad)).flatten()
            self._ready[key] = (columns, F.pad(counts.cumsum(0), (1, 0)).to(narrow))
        columns, offsets = self._ready[key]
        if not columns.numel():
            return source.new_zeros(offsets.numel() - 1, source.shape[1])
        width = _width(source, stride, len(columns), len(offsets))
        if width >= source.shape[1]:
            return self._sums(source, columns, offsets)
        out = source.new_empty(len(offsets) - 1, source.shape[1])
        for part, place in zip(source.split(width, 1), out.split(width, 1), strict=True):
            place.copy_(self._sums(part.contiguous(), columns, offsets))
        return out

    def _sums(self, source: Tensor, columns: Tensor, offsets: Tensor) -> Tensor:
        return F.embedding_bag(columns, source, offsets, mode="sum", per_sample_weights=self.values, include_last_offset=True)


def _width(source: Tensor, rows: int, entries: int, bags: int) -> int:
    """How many columns of ``source`` are summed in one pass.

    On a CPU a block's ``rows`` of that width stay in the cache. Rows that are read only a few times are not worth a copy.
    """
    row, columns = rows * source.element_size(), source.shape[1]
    if source.device.type != "cpu" or row * columns <= 2 * CACHE or entries < OFTEN * (len(source) + bags):
        return columns
    return max(LEAST, CACHE // row // LEAST * LEAST)


def runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    """``rows`` as ranges [low, high) of successive numbers, in their order."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(rows[low]), int(rows[high - 1]) + 1) for low, high in zip([0, *breaks], [*breaks, len(rows)], strict=True)]
