"""How many bytes of tensors and arrays are alive at once."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of what is made while it is entered: torch's storages on the CPU, and what Python's allocator knows, such as arrays.

    The same operations give the same count, whatever the allocator does with freed blocks. Not seen: room that an operation takes
    and frees by itself. It sees the backward pass, which the CPU runs in the calling thread.

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


class DeviceBytes:
    """:class:`LiveBytes` of a GPU, as torch's allocator counts them; a limit is what the device has."""

    def __init__(self, device: torch.device):
        self.device, self.peak = device, 0

    def __enter__(self) -> DeviceBytes:
        torch.cuda.reset_peak_memory_stats(self.device)
        self._before = torch.cuda.memory_allocated(self.device)
        return self

    def __exit__(self, *raised: Any) -> None:
        self.peak = torch.cuda.max_memory_allocated(self.device) - self._before
        torch.cuda.empty_cache()


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        if values.layout == torch.strided:  # a sparse one has no storage; those of its parts are known
            yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)
