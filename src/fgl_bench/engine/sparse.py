"""Block-diagonal sparse products over all replicas, forward and backward as one bag reduction each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.transfer import put

CACHE = 1 << 19  # bytes of a block's rows that stay in a core's cache
LEAST = 32  # columns of the narrowest pass
OFTEN = 16  # reads of a row from which copying it pays

# Said at the first such matrix; only a product that has been there for years is used.
warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta state|invariant checks are implicitly disabled)")


def _as_rows(x: Tensor) -> tuple[Tensor, int]:
    """``x [k, c, h]`` as one matrix of rows of width h, with the number of rows from one block to the next.

    A view into a stack of flat parameter rows is used where it lies if the layout is aligned to h; anything else that is
    not contiguous is copied.
    """
    k, c, h = x.shape
    aligned = x.stride(2) == 1 and x.stride(1) == h and x.stride(0) % h == 0
    if x.is_contiguous() or not aligned:
        return x.reshape(k * c, h), c
    stride = x.stride(0) // h
    return x.as_strided(((k - 1) * stride + c, h), (h, 1), x.storage_offset()), stride


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: BlockSparse) -> Tensor:
        ctx.matrix, ctx.stride, ctx.offset = matrix, x.stride(0), x.storage_offset()
        return matrix.multiply(x.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        matrix, c, h = ctx.matrix, ctx.matrix.shape[2], gradient.shape[2]
        rows, stride = _as_rows(gradient)
        # An input weight that is a slice of [k, P] gets its gradient inside a zeroed [k, P] buffer: ParameterLayout.collect
        # then needs no copy of the largest gradient.
        offset = ctx.offset % ctx.stride if ctx.stride else 0
        inside = ctx.stride > c * h and ctx.stride % h == 0 and offset % h == 0 and offset + c * h <= ctx.stride
        lead, pad = (offset // h, (ctx.stride - offset) // h - c) if inside else (0, 0)
        out = matrix.transposed.reduce(rows, stride, lead, pad)
        return out.view(-1, lead + c + pad, h)[:, lead : lead + c], None


@dataclass
class Edges:
    """The E entries of k sparse blocks as edges from columns to rows, in order of (block, row, column).

    Attributes:
        source: ``[E]`` positions in the flattened ``[k * c]`` columns.
        target: ``[E]`` positions in the flattened ``[k * r]`` rows, ascending.
        into: ``[k * r + 1]``, where each target's edges begin.
        order: ``[E]``, the edges in order of (source, target).
        out_of: ``[k * c + 1]``, where each source's edges begin in that order.
        bounds: host ``[k + 1]``, where each block's edges begin.
    """

    source: Tensor
    target: Tensor
    into: Tensor
    order: Tensor
    out_of: Tensor
    bounds: np.ndarray
    _pieces: dict[tuple[bool, int], list[tuple[slice, slice]]] = field(default_factory=dict)
    _parts: dict[int, list[tuple[slice, Edges]]] = field(default_factory=dict)
    _bags: dict[tuple[bool, int, bool], tuple[Tensor, Tensor]] = field(default_factory=dict)
    _pairs: dict[bool, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def dots(self, a: Tensor, rows: Tensor) -> Tensor:
        """``<a_v, rows_u>`` of every edge u -> v, head by head: ``[H, k * r, d]`` and ``[H, k * c, d]`` to ``[H, E]``."""
        if not self.source.numel():
            return rows.new_zeros(len(rows), 0)
        (sources, ends), copies = self.bags(False, len(rows)), len(rows)
        size = len(ends) - 1, copies * rows.shape[1]
        where = torch.sparse_csr_tensor(ends, sources, rows.new_ones(sources.numel()), size=size, check_invariants=False)
        products = torch.sparse.sampled_addmm(where, a.flatten(0, 1), rows.flatten(0, 1).mT, beta=0.0)
        return products.values().view(copies, -1)

    def parts(self, blocks: int, most: int) -> list[tuple[slice, Edges]]:
        """Edges of at most ``most`` blocks at a time, numbered from 0; computed once."""
        if most not in self._parts:
            rows, columns = (self.into.numel() - 1) // blocks, (self.out_of.numel() - 1) // blocks
            self._parts[most] = []
            for first in range(0, blocks, most):
                last = min(first + most, blocks)
                low, high = (int(self.bounds[i]) for i in (first, last))
                here = slice(low, high)
                part = Edges(
                    self.source[here] - first * columns,
                    self.target[here] - first * rows,
                    self.into[first * rows : last * rows + 1] - low,
                    self.order[here] - low,
                    self.out_of[first * columns : last * columns + 1] - low,
                    self.bounds[first : last + 1] - low,
                )
                self._parts[most].append((slice(first, last), part))
        return self._parts[most]

    def bags(self, by_source: bool, copies: int, *, interleaved: bool = False) -> tuple[Tensor, Tensor]:
        """Bags over ``copies`` copies of the nodes' rows, for ``embedding_bag``: indices and starts (with the last end); computed once.

        One bag is the edges into a target, its rows their sources; by source, the edges out of one, in ``order``, and their targets.

        Args:
            interleaved: the copies of a node's row lie side by side (``[nodes * copies]``), else copy after copy (``[copies * nodes]``);
                bags come copy after copy either way.
        """
        key = (by_source, copies, interleaved and copies > 1)
        if key not in self._bags:
            index, starts, rows = self.source, self.into, self.out_of.numel() - 1
            if by_source:
                index, starts, rows = self.target.index_select(0, self.order), self.out_of, self.into.numel() - 1
            count = index.numel()
            narrow = torch.int32 if copies * max(rows, count) < 2**31 else torch.int64
            lead = torch.arange(copies, device=index.device)[:, None]
            ends = torch.cat([(starts[:-1] + lead * count).flatten(), starts.new_full((1,), copies * count)])
            index = index * copies + lead if interleaved else index + lead * rows
            self._bags[key] = index.flatten().to(narrow), ends.to(narrow)
        return self._bags[key]

    def pairs(self, by_source: bool) -> tuple[Tensor, Tensor]:
        """Bags of an edge's two ends, for ``embedding_bag`` over the rows of all sources and, behind them, targets; found once.

        By source, the edges are in ``order``. The starts are those of bags of two, with the last end.
        """
        if by_source not in self._pairs:
            rows, order = self.out_of.numel() - 1, self.order if by_source else slice(None)
            narrow = torch.int32 if max(rows + self.into.numel(), 2 * self.source.numel()) < 2**31 else torch.int64
            index = torch.stack([self.source[order], self.target[order] + rows], 1).flatten().to(narrow)
            self._pairs[by_source] = index, torch.arange(0, index.numel() + 1, 2, dtype=narrow, device=index.device)
        return self._pairs[by_source]

    def pieces(self, by_source: bool, most: int) -> list[tuple[slice, slice]]:
        """Edges in pieces of about ``most``, and the targets (or sources) that they go into (or out of), each whole; found once."""
        key = (by_source, most)
        if key not in self._pieces:
            starts = (self.out_of if by_source else self.into).cpu().numpy()
            self._pieces[key], node = [], 0
            while node < len(starts) - 1:
                end = max(node + 1, int(np.searchsorted(starts, starts[node] + most, side="right")) - 1)
                if starts[end] > starts[node]:
                    self._pieces[key].append((slice(int(starts[node]), int(starts[end])), slice(node, end)))
                node = end
        return self._pieces[key]


class BlockSparse:
    """k sparse blocks that act on stacked dense blocks: ``y[i] = A_i x[i]``.

    Both directions keep their own bags, so backward is one more reduction and never a conversion; those of a symmetric matrix are
    the same. Sums run in a fixed order on every device.

    Attributes:
        shape: (k, r, c): number of blocks, rows and columns of each (padded with empty ones).
    """

    rebuilt = ("edges",)

    def __init__(self, bags: Bags, transposed: Bags | Callable[[], Bags], shape: tuple[int, int, int]):
        self.bags, self._transposed, self.shape = bags, transposed, shape

    @property
    def transposed(self) -> Bags:
        """The bags of the other direction; of a selection made at the first use."""
        if not isinstance(self._transposed, Bags):
            self._transposed = self._transposed()
        return self._transposed

    @classmethod
    def stack(
        cls, blocks: Sequence[sp.csr_matrix], rows: int, columns: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> BlockSparse:
        """From scipy blocks no larger than ``rows`` x ``columns`` each."""
        device = torch.device(device)
        transposed = [block.T.tocsr() for block in blocks]
        # Compared on the host: it would wait for a GPU.
        bags, other = (Bags.of(side, width, dtype, torch.device("cpu")) for side, width in ((blocks, rows), (transposed, columns)))
        symmetric = rows == columns and bags.same(other)
        bags = bags.to(device)
        return cls(bags, bags if symmetric else other.to(device), (len(blocks), rows, columns))

    def select(self, rows: Sequence[int]) -> BlockSparse:
        """The blocks ``rows`` (host integers), in that order."""
        bags, shape = self.bags.select(rows), (len(rows), *self.shape[1:])
        return BlockSparse(bags, bags if self.transposed is self.bags else lambda: self.transposed.select(rows), shape)

    def rows(self, block: np.ndarray, row: np.ndarray, shift: np.ndarray, slots: np.ndarray, columns: int) -> SparseRows:
        """Some rows of each block, with shifted columns.

        Args:
            block, row, shift: host ``[R]``: where each row lies, in the order of the slots, and what is added to its columns.
            slots: host ``[k, r]`` bool, with R slots to fill; the other rows are empty.
            columns: of each block of the result.
        """
        first = self.bags.starts[block * self.shape[1] + row]
        counts = self.bags.starts[block * self.shape[1] + row + 1] - first
        entries = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        size = np.zeros(slots.shape, dtype=np.int64)
        size[slots] = counts
        column = self.bags.columns.cpu().numpy()[entries] + np.repeat(shift, counts)
        value = self.bags.values.cpu().numpy()[entries]
        return SparseRows(_starts(size), column, value, (*slots.shape, columns), self.bags.values.dtype, self.bags.values.device)

    @property
    def T(self) -> BlockSparse:
        k, r, c = self.shape
        return BlockSparse(self.transposed, self.bags, (k, c, r))

    @property
    def nnz(self) -> int:
        return self.bags.values.numel()

    @cached_property
    def edges(self) -> Edges:
        """Where the entries lie, for what their values do not decide (see ``engine.attention``); indices are int64."""
        (k, r, c), device = self.shape, self.bags.columns.device
        counts = put(self.bags.counts.ravel(), device)
        target = torch.repeat_interleave(torch.arange(k * r, device=device), counts, output_size=self.nnz)
        source = self.bags.columns + target // r * c
        starts = [put(bags.starts, device) for bags in (self.bags, self.transposed)]
        return Edges(source, target, starts[0], source.argsort(stable=True), starts[1], self.bags.bounds)

    def multiply(self, x: Tensor) -> Tensor:
        """``[k, c, h]`` to ``[k, r, h]``, outside autograd."""
        rows, stride = _as_rows(x)
        return self.bags.reduce(rows, stride, 0, 0).view(self.shape[0], self.shape[1], -1)

    def __matmul__(self, x: Tensor) -> Tensor:
        """``[k, c, h]`` to ``[k, r, h]``, differentiable in ``x``."""
        return _Product.apply(x, self) if x.requires_grad and torch.is_grad_enabled() else self.multiply(x)


class SparseRows(BlockSparse):
    """Blocks made of their entries row by row; the transposed operand is made when a gradient needs it.

    Args:
        starts: ``[k * r + 1]`` host, where the entries of every row of the flattened ``[k * r]`` begin.
        column, value: ``[nnz]`` host.
    """

    def __init__(
        self,
        starts: np.ndarray,
        column: np.ndarray,
        value: np.ndarray,
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ):
        self.shape, self._entries, self._factory = shape, (starts, column, value), (dtype, torch.device(device))
        self.bags = self._bags(starts, column, value)

    def _bags(self, starts: np.ndarray, column: np.ndarray, value: np.ndarray) -> Bags:
        dtype, device = self._factory
        columns, values = torch.from_numpy(column.astype(np.int32, copy=False)), torch.from_numpy(np.ascontiguousarray(value))
        return Bags(columns.to(device), values.to(device, dtype), starts.astype(np.int64, copy=False), self.shape[0])

    @cached_property
    def transposed(self) -> Bags:  # from the entries; made at the first use
        (starts, column, value), (k, rows, columns) = self._entries, self.shape
        if k > 1:
            column = column + np.repeat(np.arange(k) * columns, np.diff(self.bags.bounds))
        by_column = sp.csr_matrix((value, column, starts), shape=(k * rows, k * columns)).tocsc()
        row = by_column.indices % rows if k > 1 else by_column.indices
        return self._bags(by_column.indptr.astype(np.int64), row, by_column.data)


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
            self._ready[key] = self._on_device(*key)
        columns, offsets = self._ready[key]
        if not columns.numel():
            return source.new_zeros(offsets.numel() - 1, source.shape[1])
        width = _width(source, stride, len(columns), len(offsets))
        if width >= source.shape[1]:
            return self._sums(source, columns, offsets)
        out = source.new_empty(len(offsets) - 1, source.shape[1])
        for part, chunk in zip(source.split(width, 1), out.split(width, 1), strict=True):
            chunk.copy_(self._sums(part.contiguous(), columns, offsets))
        return out

    def _on_device(self, stride: int, lead: int, pad: int) -> tuple[Tensor, Tensor]:
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
