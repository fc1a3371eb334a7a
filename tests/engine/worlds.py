"""Workers that are threads of this process: a world without torch.distributed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fgl_bench.utils.world import World

T = TypeVar("T")


class Table:
    """Shared by the threads: the value of each, and what one of them makes of all."""

    def __init__(self, size: int):
        self.values: list[Any] = [None] * size
        self.result: Any = None
        self.barrier = threading.Barrier(size, timeout=20)
        self.error: BaseException | None = None


class Threads(World):
    """The worker ``rank`` of as many as ``table`` has values."""

    def __init__(self, rank: int, table: Table):
        self.rank, self.size, self.sent, self.table = rank, len(table.values), 0, table

    def work(self, job: Callable[[World], T]) -> T:
        """Return ``job(self)``; if it raises, the others raise the same when they next wait."""
        try:
            return job(self)
        except BaseException as error:
            self.table.error = self.table.error or error
            self.table.barrier.abort()
            raise

    def _of_all(self, value: Any, call: Callable[[list[Any]], T]) -> T:
        self.table.values[self.rank] = value
        self._wait()
        if self.rank == 0:
            self.table.result = call(list(self.table.values))
        self._wait()
        return self.table.result

    def _wait(self) -> None:
        try:
            self.table.barrier.wait()
        except threading.BrokenBarrierError:
            raise self.table.error or TimeoutError("a thread was waited for too long") from None

    def first(self, call: Callable[[], T]) -> T:
        return self.gather(call() if self.rank == 0 else None)[0]  # type: ignore[return-value]  # the first one's

    def gather(self, value: T) -> list[T]:
        return list(self._of_all(value, lambda values: values))

    def collect(self, value: T) -> list[T]:
        found = self.gather(value)
        return [] if self.rank else found

    def highest(self, number: int) -> int:
        return self._of_all(number, max)

    def sum_(self, tensor: Any) -> Any:
        def total(tensors: list[Any]) -> Any:
            whole = tensors[0].clone()
            for other in tensors[1:]:
                whole += other
            return whole

        return tensor.copy_(self._of_all(tensor, total))

    def gather_rows(self, rows: Any, counts: Sequence[int]) -> list[Any]:
        return self._of_all(rows, lambda parts: [part.clone() for part in parts])

    def exchange(self, blocks: Sequence[Any], shape: Sequence[int]) -> list[Any]:
        return self._of_all(blocks, lambda sent: [[row[to] for row in sent] for to in range(self.size)])[self.rank]


def together(size: int, job: Callable[[World], Any]) -> list[Any]:
    """What ``job`` returns on each of so many workers; where one raises, so do the others."""
    table = Table(size)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: Threads(rank, table).work(job), range(size)))
