"""CUDA graphs: steps are captured once and replayed, so that a GPU does not wait for the host to launch each kernel."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")  # what holds tensors, or None

WARM_UP = 3  # calls before the capture, in which libraries choose their algorithms and caches are filled


class Replay(Generic[T]):
    """A function of tensors as a CUDA graph: called ``WARM_UP`` times, captured, and replayed from then on.

    Tensors that it is called with are copied to where it was captured. All others that it reads and writes must keep their addresses.
    Its Python code does not run in a replay, so it must do the same in every call. The next call overwrites the returned tensors.

    Args:
        device: where the function runs.
        fellow: another graph that is never replayed at the same time; both share one memory pool.
    """

    def __init__(self, function: Callable[..., T], device: torch.device, fellow: Replay | None = None):
        self._function, self._device, self._fellow, self._calls = function, device, fellow, 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: dict[str, Tensor] = {}
        self._result: T

    def __call__(self, **inputs: Tensor) -> T:
        with torch.cuda.device(self._device):  # streams and graphs are of the current one
            if self._calls < WARM_UP:
                self._calls += 1
                return self._on_side_stream(inputs)
            if self._graph is None:
                self._inputs = {name: value.clone() for name, value in inputs.items()}
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self._pool()):  # records, and runs nothing
                    self._result = self._function(**self._inputs)
                self._graph = graph
            else:
                for name, value in inputs.items():
                    self._inputs[name].copy_(value)
            self._graph.replay()
            return self._result

    def _pool(self) -> Any:
        return None if self._fellow is None or self._fellow._graph is None else self._fellow._graph.pool()

    def _on_side_stream(self, inputs: dict[str, Tensor]) -> T:
        """On a stream of its own, as a capture asks of the calls before it."""
        now, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(now)
        with torch.cuda.stream(side):
            result = self._function(**inputs)
        now.wait_stream(side)
        return result


class Replays:
    """Graphs by name. No two are replayed at the same time, so that all share one memory pool."""

    def __init__(self, device: torch.device):
        self._device = device
        self._graphs: dict[Hashable, Replay] = {}

    def __call__(self, name: Hashable, function: Callable[[], T]) -> T:
        """Return the result of ``function``, which is captured at its first call by this name."""
        if name not in self._graphs:
            self._graphs[name] = Replay(function, self._device, next(iter(self._graphs.values()), None))
        return self._graphs[name]()

    def clear(self) -> None:
        self._graphs.clear()
