"""Stacked dense products."""

from __future__ import annotations

import torch
from torch import Tensor

# Batched products with a narrow result are several times faster transposed on a CPU (measured with MKL on AVX2).
NARROW = 32


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x[i] @ weight[i]``: ``[k, n, a]`` and ``[k, a, b]`` to ``[k, n, b]``."""
    if x.is_cuda or weight.shape[2] > NARROW:
        return torch.bmm(x, weight)
    return torch.bmm(weight.mT, x.mT).mT
