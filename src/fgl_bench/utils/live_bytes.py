"""Peak memory of a part of a program: live bytes, resident bytes of the process, or bytes of a GPU."""

from __future__ import annotations

import gc
import resource
import tracemalloc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fgl_bench.utils.allocator import return_freed_memory


class LiveBytes(TorchDispatchMode):
    """Count bytes allocated inside the context: torch's storages on the CPU, and memory of Python's allocator, such as arrays.

    The same operations give the same count, regardless of the allocator's reuse of freed blocks. Workspace that an operation
    allocates and frees internally is not counted. It sees the backward pass, which the CPU runs in the calling thread.

    Args:
        limit: most bytes; an operation that exceeds them raises MemoryError.

    Attributes:
        live: bytes of tensors that are alive now.
        peak: most bytes of tensors and arrays that were alive at once.
    """

    def __init__(self, limit: int | None = None):
        super().__init__()
        self.limit, self.live, self.peak = limit, 0, 0
        self._storages: dict[int, tuple[weakref.ref, int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled; to say so, torch would import its compiler for seconds

    def __enter__(self) -> LiveBytes:
        self._traces = not tracemalloc.is_tracing()
        if self._traces:
            tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._note()
        if self._traces:
            tracemalloc.stop()
        self._storages.clear()

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        given = {tensor.untyped_storage()._cdata for tensor in _tensors((args, tuple(kwargs.values())))}
        results = function(*args, **kwargs)
        for tensor in _tensors(results):
            storage = tensor.untyped_storage()
            known = self._storages.get(storage._cdata)
            if known is not None:
                self.live += storage.nbytes() - known[1]  # an operation may resize what it writes to
                self._storages[storage._cdata] = (known[0], storage.nbytes())
            elif storage._cdata not in given:  # else a view of what was there before, or of an array
                self._add(storage)
        self._note()
        if self.limit is not None and self.peak > self.limit:
            raise MemoryError(f"{self.peak} bytes are more than {self.limit}")
        return results

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata

        def freed(_: weakref.ref) -> None:
            self.live -= self._storages.pop(key, (None, 0))[1]

        self._storages[key] = (weakref.ref(storage, freed), storage.nbytes())
        self.live += storage.nbytes()

    def _note(self) -> None:
        self.peak = max(self.peak, self.live + tracemalloc.get_traced_memory()[1] - self._before)
        tracemalloc.reset_peak()


class ResidentBytes:
    """How far the resident memory of this process rises, holes between blocks included. For a forked process on Linux, which ends after it.

    Args:
        limit: bytes more than now that the system grants this process; beyond them allocations fail.

    Attributes:
        peak: bytes of the rise; known on exit.
    """

    def __init__(self, limit: int | None = None):
        self.limit, self.peak = limit, 0

    def __enter__(self) -> ResidentBytes:
        gc.collect()
        return_freed_memory()  # what was freed before would be taken again, and not be seen to rise
        if self.limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + self.limit, resource.RLIM_INFINITY))
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
        self._before = _status("RssAnon")
        return self

    def __exit__(self, *raised: Any) -> None:
        self.peak = max(0, _status("VmHWM") - _status("RssFile") - self._before)  # libraries are read in for the first time


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


class DeviceBytes:
    """Bytes that torch's allocator reserves of a GPU, where replayed graphs have pools of their own; the device's memory is the limit.

    Attributes:
        peak: bytes reserved more than before; known on exit.
    """

    def __init__(self, device: torch.device):
        self.device, self.peak = device, 0

    def __enter__(self) -> DeviceBytes:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        self._before = torch.cuda.memory_reserved(self.device)
        return self

    def __exit__(self, *raised: Any) -> None:
        self.peak = torch.cuda.max_memory_reserved(self.device) - self._before
        gc.collect()  # steps that are replayed hold themselves
        torch.cuda.empty_cache()


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        if values.layout == torch.strided:  # a sparse one has no storage; those of its parts are known
            yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)
