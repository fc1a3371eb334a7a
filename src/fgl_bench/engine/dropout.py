"""Dropout whose mask is a pure function of (replica's stream, trip, epoch, layer, node, unit).

A counter-based generator replaces a stateful one: masks do not depend on which replicas share a batch, on chunking, on
padding or on the device, nothing has to be stored between trips, and drawing costs a tenth of a serial Bernoulli.
"""

from __future__ import annotations

import torch
from torch import Tensor

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_LANES = 4  # 16-bit draws in one 64-bit word
_counters: dict[torch.device, Tensor] = {}


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of signed 64-bit integers; a new tensor."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele et al., OOPSLA 2014), element-wise on int64."""
    x = _shift(x, 30).bitwise_xor_(x).mul_(_MIX_1)
    x = _shift(x, 27).bitwise_xor_(x).mul_(_MIX_2)
    return _shift(x, 31).bitwise_xor_(x)


def _counter(count: int, device: torch.device) -> Tensor:
    """``[count]``, the beginning of one sequence a device, which is kept."""
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


class Dropout:
    """Inverted dropout for stacked activations.

    Args:
        rate: probability of zeroing a unit; resolved to 1/65,536.
        key: ``[k]`` int64, one per replica; must differ between steps.
    """

    def __init__(self, rate: float, key: Tensor):
        self.rate, self.key = rate, key

    def __call__(self, x: Tensor, rate: float | None = None) -> Tensor:
        """``[k, n, h]`` to the same shape; every call of one step draws a new mask. ``rate`` stands in for the usual one."""
        threshold = round((self.rate if rate is None else rate) * 65536) - 32768
        if threshold == -32768:
            return x
        scale = 65536 / (32768 - threshold) if threshold < 32768 else 0.0
        self.key = self.key + GOLDEN
        draws = uniform16(mix(self.key), x.shape[1], x.shape[2])
        # Straight to 0 and 1 of the activations' type: by way of bool it takes five times as long on a CPU.
        kept = torch.ge(draws, threshold, out=torch.empty(draws.shape, dtype=x.dtype, device=x.device))
        return x * kept.mul_(scale)


def no_dropout(x: Tensor, rate: float | None = None) -> Tensor:
    """Evaluation mode."""
    return x


def step_key(stream: Tensor, trip: Tensor, epoch: int) -> Tensor:
    """Keys ``[k]`` of one local step from the replicas' streams ``[k]`` and trip numbers ``[k]``, all int64."""
    return mix(mix(stream + trip * GOLDEN) + epoch)
