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
        starts: host ``[k * r + 1]`` int64, where the entries of every row start, block after block, with the last end.
        blocks: k.
    """

    rebuilt = ("_ready",)

    def __init__(self, columns: Tensor, values: Tensor, starts: np.ndarray, blocks: int):
        self.columns, self.values, self.starts, self.blocks = columns, values, starts, blocks
        self._ready: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, blocks: Sequence[sp.csr_matrix], rows: int, dtype: torch.dtype, device: torch.device) -> Bags:
        counts = np.zeros((len(blocks), rows), dtype=np.int64)
        for i, block in enumerate(blocks):
            counts[i, : block.shape[0]] = np.diff(block.indptr)
        columns = np.concatenate([block.indices for block in blocks]).astype(np.int32, copy=False)
        values = np.concatenate([block.data for block in blocks])
        return cls(torch.from_numpy(columns).to(device), torch.from_numpy(values).to(device, dtype), _starts(counts), len(blocks))

    @property
    def counts(self) -> np.ndarray:
        """Host ``[k, r]``, the entries of every row."""
        return np.diff(self.starts).reshape(self.blocks, (len(self.starts) - 1) // self.blocks)

    @property
    def bounds(self) -> np.ndarray:
        """Host ``[k + 1]``, where each block's entries start."""
        return self.starts[np.arange(self.blocks + 1) * ((len(self.starts) - 1) // self.blocks)]

    def select(self, rows: Sequence[int]) -> Bags:
        bounds = self.bounds
        spans = [slice(bounds[low], bounds[high]) for low, high in runs(rows)]
        columns, values = (torch.cat([entries[span] for span in spans]) for entries in (self.columns, self.values))
        return Bags(columns, values, _starts(self.counts[list(rows)]), len(rows))

    def to(self, device: torch.device) -> Bags:
        return Bags(self.columns.to(device), self.values.to(device), self.starts, self.blocks)

    def same(self, other: Bags) -> bool:
        """Return True if ``other`` has the same entries in the same order."""
        same = all(torch.equal(getattr(self, name), getattr(other, name)) for name in ("columns", "values"))
        return same and self.blocks == other.blocks and np.array_equal(self.starts, other.starts)

    def reduce(self, source: Tensor, stride: int, lead: int, pad: int) -> Tensor:
        """Sum of ``value * source[block * stride + column]`` over every bag.

        Args:
            source: ``[*, h]`` rows of all blocks.
            stride: rows of ``source`` from one block to the next.
            lead, pad: empty output rows before and after each block's own.

        Returns:
            ``[k * (lead + r + pad), h]``.
        """
        key = (stride, lead, pad)
        if key not in self._ready:
            self._ready[key] = self._placed(*key)
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

    def _placed(self, stride: int, lead: int, pad: int) -> tuple[Tensor, Tensor]:
        """Columns among the rows of all blocks, and where every bag starts, on the device."""
        k, device = self.blocks, self.columns.device
        # The narrow type halves the traffic of the indices; both must be of one type.
        narrow = torch.int32 if max(k * stride, self.values.numel()) < 2**31 else torch.int64
        starts = _starts(np.pad(self.counts, ((0, 0), (lead, pad)))) if lead or pad else self.starts
        if k == 1:
            return self.columns.to(narrow), put(starts, device, narrow)
        shifts, sizes, starts_there = np.arange(k) * stride, np.diff(self.bounds), put(starts, device, narrow)
        if device.type == "cpu":  # where a sum for every block takes longer
            return put(np.repeat(shifts, sizes), device, narrow).add_(self.columns), starts_there
        columns = self.columns.to(narrow, copy=True)
        torch._foreach_add_(columns.split(sizes.tolist()), shifts.tolist())  # in one kernel
        return columns, starts_there

    def _sums(self, source: Tensor, columns: Tensor, offsets: Tensor) -> Tensor:
        return F.embedding_bag(columns, source, offsets, mode="sum", per_sample_weights=self.values, include_last_offset=True)


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])


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
