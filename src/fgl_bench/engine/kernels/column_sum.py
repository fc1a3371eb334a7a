"""Sums of a client's precomputed matrices, with a coefficient for every matrix and column, and dropout."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.derived import Derived
from fgl_bench.engine.dropout import Dropout, DropoutFunction, no_dropout
from fgl_bench.engine.kernels.compiled import compiles


def combined(batch: Batch, build: Derived, coefficients: Tensor, dropout: DropoutFunction = no_dropout, rate: float = 0.0) -> Tensor:
    """``sum_j c_j dropout(B_j)`` of every replica, by automatic differentiation or, where it can be, in one compiled pass.

    Args:
        coefficients: c, ``[k, J]``, or one for every column, ``[k, J, F]``.
        dropout, rate: of every B_j.

    Returns:
        ``[k, n, F]``.
    """
    blocks, kind, by_column = batch.derived(build), coefficients.dtype, coefficients.dim() == 3
    drops = rate > 0 and dropout is not no_dropout
    known = isinstance(dropout, Dropout) or not drops
    if (drops or by_column) and known and compiles(blocks.values) and blocks.values.dtype == kind:
        from fgl_bench.engine.kernels.column_sum_loops import ColumnSum

        each = coefficients if by_column else coefficients[..., None].expand(-1, -1, blocks.shape[3])
        return ColumnSum.apply(each, blocks, dropout.masks(blocks.shape[1], rate) if isinstance(dropout, Dropout) else None)
    values = blocks.stacked()
    if not drops and not by_column:
        k, copies, nodes, width = values.shape
        summed = torch.bmm(coefficients[:, None].to(values.dtype), values.view(k, copies, nodes * width))
        return summed.view(k, nodes, width).to(kind)
    each = coefficients[:, :, None] if by_column else coefficients[..., None, None]
    dropped = (lambda b: dropout(b, rate)) if drops else (lambda b: b)
    return cast(Tensor, sum(each[:, j] * dropped(values[:, j].to(kind)) for j in range(values.shape[1])))
