"""Random draws that are a pure function of (stream, node, unit): a counter-based generator replaces a stateful one.

Draws do not depend on which replicas share a batch, on chunking, on padding or on the device.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_LANES = 4  # 16-bit draws in one 64-bit word
_counters: dict[torch.device, Tensor] = {}


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of signed 64-bit integers; a new tensor."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """The finalizer of SplitMix64 (Steele et al., OOPSLA 2014), element-wise on int64."""
    x = _shift(x, 30).bitwise_xor_(x).mul_(MIX_1)
    x = _shift(x, 27).bitwise_xor_(x).mul_(MIX_2)
    return _shift(x, 31).bitwise_xor_(x)


def mix_on_host(x: np.ndarray) -> np.ndarray:
    """:func:`mix` of uint64, for a few numbers, which a GPU would take ten launches for."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX_1 % 2**64)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(MIX_2 % 2**64)
    return x ^ (x >> np.uint64(31))


def _counter(count: int, device: torch.device) -> Tensor:
    """``[count]``, the start of one sequence per device, which is cached."""
    held = _counters.get(device)
    if held is None or len(held) < count:
        held = _counters[device] = torch.arange(count, device=device) * GOLDEN
    return held[:count]


def uniform16(key: Tensor, nodes: int, units: int) -> Tensor:
    """Independent 16-bit draws ``[k, nodes, units]`` (int16, uniform over its whole range) from one key ``[k]`` a replica.

    The draw of (node, unit) does not depend on ``nodes``.
    """
    words = -(-units // _LANES)
    draws = mix(key[:, None] + _counter(nodes * words, key.device)).view(-1, nodes, words)
    return draws.view(torch.int16)[..., :units]


def draws64(key: Tensor, nodes: int) -> Tensor:
    """Independent 64-bit draws ``[k, nodes]`` from one key ``[k]`` a replica; those of a node do not depend on ``nodes``."""
    return mix(mix(key)[:, None] + _counter(nodes, key.device))


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


def step_key(stream: Tensor, trip: Tensor, epoch: int | Tensor) -> Tensor:
    """Keys ``[k]`` of one local step from the replicas' streams ``[k]`` and trip numbers ``[k]``, all int64."""
    return mix(mix(stream + trip * GOLDEN) + epoch)
