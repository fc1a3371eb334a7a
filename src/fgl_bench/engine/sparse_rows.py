"""Block-diagonal sparse matrices that are used once or twice."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch

from fgl_bench.engine.bags import Bags
from fgl_bench.engine.sparse import BlockSparse


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
        self.shape, self._entries, self._made = shape, (starts, column, value), (dtype, torch.device(device))
        self.bags = self._bags(starts, column, value)

    def _bags(self, starts: np.ndarray, column: np.ndarray, value: np.ndarray) -> Bags:
        dtype, device = self._made
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
