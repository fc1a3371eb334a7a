"""Several workers in one process: a world whose workers are threads, of this process alone or of several of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate, product
from typing import Any, TypeVar

from fgl_bench.utils.processes import Stopped
from fgl_bench.utils.world import World

T = TypeVar("T")
WAIT = 1800.0  # longest time in seconds that one waits for the others


class Table:
    """Where the threads of a process put what they have, and find what has come of it.

    Attributes:
        error: what ended the first that failed.
    """

    def __init__(self, count: int, wait: float):
        self.values: list[Any] = [None] * count
        self.result: Any = None
        self.barrier = threading.Barrier(count, timeout=wait)
        self.error: BaseException | None = None


class Threads(World):
    """One of the threads.

    Args:
        index: its number in this process; the first one sends what all have to those of other processes.
        hosts: threads of every process.
        outer: the world of processes.
    """

    def __init__(self, index: int, hosts: Sequence[int], table: Table, outer: World):
        self.starts = [0, *accumulate(hosts)]
        self.index, self.hosts, self.table, self.outer = index, hosts, table, outer
        self.rank, self.size, self.sent = self.starts[outer.rank] + index, sum(hosts), 0

    def work(self, job: Callable[[], T]) -> T:
        """What ``job`` returns; where it raises, the others do the same when they next wait for each other."""
        try:
            return job()
        except Stopped:  # all are
            raise
        except BaseException as error:
            self.table.error = self.table.error or error
            self.table.barrier.abort()
            raise

    def _of_all(self, value: Any, call: Callable[[list[Any]], T]) -> T:
        """What ``call`` makes of the values of this process's threads; the first one calls it, and all get the same object."""
        self.table.values[self.index] = value
        self._wait()
        if self.index == 0:
            before = self.outer.sent
            self.table.result = call(list(self.table.values))
            self.sent += self.outer.sent - before
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
        return list(self._of_all(value, lambda values: sum(self.outer.gather(values), [])))

    def collect(self, value: T) -> list[T]:
        found = self._of_all(value, lambda values: sum(self.outer.collect(values), []))
        return [] if self.rank else list(found)

    def highest(self, number: int) -> int:
        return self._of_all(number, lambda numbers: self.outer.highest(max(numbers)))

    def sum_(self, tensor: Any) -> Any:
        def total(tensors: list[Any]) -> Any:
            whole = tensors[0].clone()
            for other in tensors[1:]:
                whole += other
            return self.outer.sum_(whole)

        return tensor.copy_(self._of_all(tensor, total))

    def gather_rows(self, rows: Any, counts: Sequence[int]) -> list[Any]:
        def joined(parts: list[Any]) -> list[Any]:
            whole = rows.new_empty(sum(map(len, parts)), *rows.shape[1:])
            for part, start in zip(parts, accumulate(map(len, parts), initial=0), strict=False):
                whole[start : start + len(part)] = part
            own = [list(counts[start:stop]) for start, stop in zip(self.starts, self.starts[1:], strict=False)]
            found = self.outer.gather_rows(whole, [sum(each) for each in own])
            return [part for each, several in zip(found, own, strict=True) for part in each.split(several)]

        return self._of_all(rows, joined)

    def exchange(self, blocks: Sequence[Any], shape: Sequence[int]) -> list[Any]:
        return self._of_all((blocks, shape), self._exchanged)[self.index]

    def _exchanged(self, sent: list[Any]) -> list[list[Any]]:
        """What each thread of this process gets: every process's thread number i sends to every one's number j, for all i and j."""
        found: list[list[Any]] = [[None] * self.size for _ in sent]
        for i, j in product(range(max(self.hosts)), repeat=2):
            to = [start + j if j < count else None for start, count in zip(self.starts, self.hosts, strict=False)]
            blocks = sent[min(i, len(sent) - 1)][0]  # who has no thread i sends anything, of that size
            shape = sent[j][1] if j < len(sent) else (0,)
            got = self.outer.exchange([blocks[0].new_empty(0) if at is None else blocks[at] for at in to], shape)
            for process, count in enumerate(self.hosts):
                if j < len(sent) and i < count:
                    found[j][self.starts[process] + i] = got[process]
        return found


def threads(hosts: Sequence[int], outer: World, wait: float = WAIT) -> list[Threads]:
    """The worlds of this process's threads, where every process of ``outer`` has so many."""
    count = hosts[outer.rank]
    table = Table(count, wait)
    return [Threads(index, hosts, table, outer) for index in range(count)]
