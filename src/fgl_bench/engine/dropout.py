"""Dropout whose mask is a pure function of (replica's stream, trip, epoch, layer, node, unit).

Nothing has to be stored between trips, and drawing costs a tenth of a serial Bernoulli.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.random_numbers import GOLDEN, mix, mix_on_host, step_key, uniform16
from fgl_bench.engine.transfer import put

ALL = -32768  # least draw and least threshold


def _mask(key: Tensor, x: Tensor, threshold: int) -> Tensor:
    """Masks ``[len(key), n, h]`` for activations of the shape and type of ``x [k, n, h]``."""
    draws = uniform16(key, x.shape[1], x.shape[2])
    # Directly to 0 and 1 of the activations' type: via bool it takes five times as long on a CPU.
    mask = torch.ge(draws, threshold, out=torch.empty(draws.shape, dtype=x.dtype, device=x.device))
    return mask.mul_(_scale(threshold))


def _threshold(rate: float) -> int:
    """The least draw that is kept."""
    return round(rate * 65536) - 32768


def _scale(threshold: int) -> float:
    """The factor that scales units that are not dropped."""
    return 65536 / (32768 - threshold) if threshold < 32768 else 0.0


class Masks(NamedTuple):
    """Masks that a compiled loop makes itself: of 16-bit draws those from ``threshold`` on are kept, times ``scale``.

    Attributes:
        keys: ``[L, k]``, of L masks.
    """

    keys: Tensor
    threshold: int
    scale: float


class DropoutFunction(Protocol):
    """The dropout of a forward pass: :class:`Dropout` in training, :func:`no_dropout` in evaluation."""

    def __call__(self, x: Tensor, rate: float | None = None, /) -> Tensor: ...


class Dropout:
    """Inverted dropout for stacked activations.

    Args:
        rate: probability of zeroing a unit; resolved to 1/65,536.
        key: ``[k]`` int64, one per replica; must differ between steps.
        layers: precomputed keys and masks that follow from ``key``, if available (:class:`StepKeys`).
    """

    def __init__(self, rate: float, key: Tensor, layers: Layers | None = None):
        self.rate, self.key, self.layers, self.calls = rate, key, layers, 0

    def select(self, index: Tensor, rate: float) -> Dropout:
        """The dropout of the replicas ``index`` with a rate of their own, before any call; masks are those of the whole."""
        return Dropout(rate, self.key[index], None if self.layers is None else Layers(self.layers.keys[:, index]))

    def __call__(self, x: Tensor, rate: float | None = None) -> Tensor:
        """``[k, n, h]`` to the same shape; every call within a step draws a new mask. ``rate`` overrides the default."""
        threshold = _threshold(self.rate if rate is None else rate)
        if threshold == ALL:
            return x
        key = self._next()
        if self.layers is not None and self.layers.mask is not None and x.is_cuda:
            mask = self.layers.mask(self.calls, x, threshold)
            if mask is not None:
                return x * mask
        return x * _mask(key, x, threshold)

    def masks(self, calls: int, rate: float) -> Masks:
        """Masks of the next ``calls`` calls, which then count as made."""
        threshold = _threshold(rate)
        keys = [self._next() for _ in range(calls if threshold > ALL else 0)]  # a rate of 0 draws nothing
        return Masks(torch.stack(keys or [self.key] * calls), threshold, _scale(threshold))

    def _next(self) -> Tensor:
        """The key ``[k]`` of this call."""
        self.calls += 1
        if self.layers is not None and self.calls <= len(self.layers.keys):
            return self.layers.keys[self.calls - 1]
        return mix(self.key + _wrapped(self.calls * GOLDEN))


def _wrapped(number: int) -> int:
    """As a signed 64-bit integer."""
    return (number + 2**63) % 2**64 - 2**63


def no_dropout(x: Tensor, rate: float | None = None) -> Tensor:
    """Evaluation mode."""
    return x


class Layers(NamedTuple):
    """Precomputed keys and masks for the dropouts of a step.

    Attributes:
        keys: ``[L, k]``, the keys of the first L calls.
        mask: number of the call, activations and threshold to a mask that may be held already; None where none are.
    """

    keys: Tensor
    mask: Callable[[int, Tensor, int], Tensor | None] | None = None


class StepKeys:
    """:func:`step_key` of replicas that train at the same time, and what follows for a step's first layers, for many trips at once.

    They are a few numbers a step, and one by one they take a GPU more launches than the step. So do small masks, which a GPU makes for
    up to 16 trips, within ``BYTES`` in all; on a CPU they would only leave its caches.
    """

    STEPS, LAYERS = 64, 4
    TRIPS, BYTES = 16, 1 << 26

    def __init__(self, streams: Tensor, epochs: int):
        self.streams, self.epochs, self._host = streams, epochs, streams.cpu().numpy().view(np.uint64)
        self.first, self.keys, self.layers = 0, streams.new_empty(0, epochs, len(streams)), streams.new_empty(0)
        self._masks: dict[tuple, tuple[int, Tensor]] = {}

    def mask(self, trip: int, epoch: int, call: int, x: Tensor, threshold: int) -> Tensor | None:
        """The mask of a step's ``call``-th dropout, made with those of the trips to come; None where only one would fit."""
        held = min(self.TRIPS, self.BYTES // (self.LAYERS * self.epochs * max(1, x.numel() * x.element_size())))
        if held < 2 or call > self.LAYERS:
            return None
        kind = (epoch, call, x.shape, x.dtype, threshold)
        first, masks = self._masks.get(kind, (trip, x[:0]))
        if not 0 <= trip - first < len(masks):
            here = slice(trip - self.first, trip - self.first + held)
            keys = self.layers[here, epoch, call - 1]
            first, masks = trip, _mask(keys.flatten(), x, threshold).unflatten(0, keys.shape)
            self._masks[kind] = first, masks
        return masks[trip - first]

    def step(self, rows: tuple[int, ...], index: Tensor | slice, done: np.ndarray, epoch: int) -> tuple[Tensor, Layers]:
        """The keys ``[k]`` of a step of the replicas ``rows``, and what its dropouts need.

        Args:
            index: ``rows`` on the device, or a slice of all.
            done: host ``[B]``, trips that every replica has made.
        """
        trip, trips = int(done.min()), done[list(rows)]
        if done.max() > trip + 1 or (trips != trip).any():
            key, layers = self.of_each(rows, trips, epoch)
            return key, Layers(layers)
        key, layers = self.of(trip, epoch)
        return key[index], Layers(layers[:, index], partial(self.mask, trip, epoch) if len(rows) == len(done) else None)

    def of(self, trip: int, epoch: int) -> tuple[Tensor, Tensor]:
        """The step's keys ``[k]``, and those of its first dropouts ``[L, k]``."""
        if not 0 <= trip - self.first < len(self.keys):
            device, self.first = self.streams.device, trip
            trips = torch.arange(trip, trip + max(1, self.STEPS // self.epochs), device=device)[:, None, None]
            self.keys = step_key(self.streams, trips, torch.arange(self.epochs, device=device)[:, None])
            self.layers = mix(self.keys[:, :, None] + torch.arange(1, self.LAYERS + 1, device=device)[:, None] * GOLDEN)
        return self.keys[trip - self.first, epoch], self.layers[trip - self.first, epoch]

    def of_each(self, rows: Sequence[int], trips: np.ndarray, epoch: int) -> tuple[Tensor, Tensor]:
        """The same for replicas ``rows [k]`` of which each is at a trip of its own."""
        golden = np.uint64(GOLDEN % 2**64)
        keys = mix_on_host(mix_on_host(self._host[list(rows)] + trips.astype(np.uint64) * golden) + np.uint64(epoch))
        layers = mix_on_host(keys + np.arange(1, self.LAYERS + 1, dtype=np.uint64)[:, None] * golden)
        both = put(np.concatenate([keys[None], layers]).view(np.int64), self.streams.device)
        return both[0], both[1:]
