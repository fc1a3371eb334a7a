"""Steps that are captured once and replayed, so that a GPU need not wait for the host to issue them one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")  # tensors, or None

WARM_UP = 3  # calls before the capture, in which libraries choose their algorithms and caches are filled


class Replay(Generic[T]):
    """A function without arguments as a CUDA graph: called ``WARM_UP`` times, captured, and replayed from then on.

    Whatever it reads and writes must stay at its address, and its Python code must do the same in every call: it no longer runs.
    What it returns is overwritten by the next call.
    """

    def __init__(self, function: Callable[[], T]):
        self._function, self._calls = function, 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: T

    def __call__(self) -> T:
        if self._calls < WARM_UP:
            self._calls += 1
            return self._aside()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):  # records, and runs nothing
                self._result = self._function()
        self._graph.replay()
        return self._result

    def _aside(self) -> T:
        """On a stream of its own, as a capture asks of the calls before it."""
        now, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(now)
        with torch.cuda.stream(side):
            result = self._function()
        now.wait_stream(side)
        return result
