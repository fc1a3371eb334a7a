"""What a run that is made anew has anyway (graphs, networks, settings): a checkpoint names it by its path instead of holding it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

DEEPEST = 12


class Memory(NamedTuple):
    """Where the elements of a tensor or an array lie: bytes ``low`` to ``high`` of a device's memory."""

    device: str
    low: int
    high: int


def memory(leaf: torch.Tensor | np.ndarray) -> Memory:
    """Of a tensor or an array; an empty one has none (``low == high``)."""
    if isinstance(leaf, torch.Tensor):
        low, size, device = leaf.data_ptr(), leaf.element_size(), str(leaf.device)
        ends = [(count - 1) * stride * size for count, stride in zip(leaf.shape, leaf.stride(), strict=True)]
        empty = leaf.numel() == 0
    else:
        low, size, device = leaf.__array_interface__["data"][0], leaf.itemsize, "cpu"
        ends = [(count - 1) * stride for count, stride in zip(leaf.shape, leaf.strides, strict=True)]
        empty = leaf.size == 0
    if empty:
        return Memory(device, 0, 0)
    return Memory(device, low + sum(end for end in ends if end < 0), low + sum(end for end in ends if end > 0) + size)


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, by names that are the same in every process."""
    if isinstance(value, dict):
        yield from ((str(i), inner) for i, inner in enumerate(value.values()))
    elif isinstance(value, list | tuple):
        yield from ((str(i), inner) for i, inner in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        yield from vars(value).items()


class Given:
    """The objects that ``roots`` hold, directly or through others, by path (``setting.batch.labels``).

    Args:
        alone: further objects, of which what they hold is not given.
    """

    def __init__(self, roots: Mapping[str, Any], alone: Mapping[str, Any]):
        self.objects: dict[str, Any] = dict(alone)
        self.paths: dict[int, str] = {id(value): path for path, value in alone.items()}
        for name, root in roots.items():
            self._walk(name, root, DEEPEST)
        held = [(memory(leaf), path) for path, leaf in self.objects.items() if isinstance(leaf, torch.Tensor | np.ndarray)]
        self._memory = sorted(pair for pair in held if pair[0].low < pair[0].high)

    def _walk(self, path: str, value: Any, depth: int) -> None:
        if value is None or isinstance(value, bool | int | float | str | bytes) or id(value) in self.paths or not depth:
            return
        self.paths[id(value)], self.objects[path] = path, value
        if not isinstance(value, torch.Tensor | np.ndarray):
            for name, inner in list(parts(value)):
                self._walk(f"{path}.{name}", inner, depth - 1)

    def path(self, value: Any) -> str | None:
        """Of an object that was given."""
        found = self.paths.get(id(value))
        return found if found is not None and self.objects[found] is value else None

    def holder(self, where: Memory) -> tuple[str, int] | None:
        """The path of a tensor or an array in whose memory this lies, and how many bytes in."""
        at = bisect_right(self._memory, (where, "\uffff"))
        for held, path in reversed(self._memory[max(0, at - 8) : at]):
            if held.device == where.device and held.low <= where.low and where.high <= held.high:
                return path, where.low - held.low
        return None
