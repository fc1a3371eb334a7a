"""Uniform and normal draws that are a pure function of (stream, node, unit), like :mod:`fgl_bench.engine.dropout`'s masks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fgl_bench.engine.dropout import draws64


def fractions(draws: Tensor) -> Tensor:
    """Numbers from [0, 1) in steps of 2^-53, float64, from 64-bit draws."""
    return ((draws >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


def uniform(key: Tensor, nodes: int, units: int) -> Tensor:
    """Independent draws from [0, 1), ``[k, nodes, units]`` float64, from one int64 key ``[k]`` a replica.

    The draw of (node, unit) depends neither on ``nodes`` nor on the other replicas.
    """
    return fractions(draws64(key, nodes * units)).view(-1, nodes, units)


def normal(key: Tensor, nodes: int, units: int, dtype: torch.dtype) -> Tensor:
    """Independent standard normal draws ``[k, nodes, units]`` (Box & Muller, 1958), from keys as :func:`uniform`'s."""
    first, second = uniform(key, nodes, 2 * units).chunk(2, -1)
    return (torch.sqrt(-2 * torch.log1p(-first)) * torch.cos(2 * math.pi * second)).to(dtype)
