"""Workers that are threads of this process: a world without torch.distributed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from fgl_bench.utils.world import World


class Threads(World):
    """One of ``size`` workers that put what they have into the same list."""

    def __init__(self, rank: int, size: int, table: list[Any], barrier: threading.Barrier):
        self.rank, self.size, self.table, self.barrier = rank, size, table, barrier

    def gather(self, value: Any) -> list[Any]:
        self.table[self.rank] = value
        self.barrier.wait()
        found = list(self.table)
        self.barrier.wait()
        return found

    def first(self, call: Callable[[], Any]) -> Any:
        return self.gather(call() if self.rank == 0 else None)[0]

    def collect(self, value: Any) -> list[Any]:
        found = self.gather(value)
        return [] if self.rank else found

    def highest(self, number: int) -> int:
        return max(self.gather(number))

    def sum_(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(torch.stack(self.gather(tensor.clone())).sum(0))

    def gather_rows(self, rows: Tensor, counts: Sequence[int]) -> list[Tensor]:
        found = self.gather(rows)
        assert [len(part) for part in found] == list(counts)
        return found

    def exchange(self, blocks: Sequence[Tensor], shape: Sequence[int]) -> list[Tensor]:
        found = [sent[self.rank].clone() for sent in self.gather(blocks)]
        assert all(block.shape == torch.Size(shape) for block in found)
        return found


def together(size: int, job: Callable[[World], Any]) -> list[Any]:
    """What ``job`` returns on each of so many workers; where one raises, the others are not waited for."""
    table, barrier = [None] * size, threading.Barrier(size, timeout=20)

    def work(rank: int) -> Any:
        try:
            return job(Threads(rank, size, table, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        begun = [pool.submit(work, rank) for rank in range(size)]
    errors = [error for error in (each.exception() for each in begun) if error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [each.result() for each in begun]
