"""A world of several workers: torch.distributed, with gloo for tensors on a CPU and nccl for those on a GPU."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fgl_bench.errors import UserError
from fgl_bench.utils.world import Lost, World

T = TypeVar("T")
WAIT = timedelta(minutes=30)
"""Longest time that a worker waits for another one: worker 0 may have a large graph to read and to split."""
MEET = timedelta(minutes=2)
"""Longest time that a worker waits for all to come."""
PAUSE = 3.0
"""Seconds for workers that saw another one die to report it, before workers that only time out do."""
GONE = "another worker is gone, and the run with it; give the same command again"


class Group(World):
    """The workers of a process group.

    Bytes of a run's tensors are counted as they leave this worker: in a sum over R workers, which goes around a ring, 2 (R - 1) / R times
    the tensor.

    Args:
        group: None means the default group.
        store: where all workers can read and write.
    """

    def __init__(self, rank: int, size: int, group: Any, store: Any):
        self.rank, self.size, self.group, self.store, self.sent = rank, size, group, store, 0

    def first(self, call: Callable[[], T]) -> T:
        return self.gather(call() if self.rank == 0 else None)[0]  # type: ignore[return-value]

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        if self.rank:
            self.gather(None)
        yield
        if not self.rank:
            self.gather(None)

    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        with present():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def collect(self, value: T) -> list[T]:
        values: list[Any] | None = None if self.rank else [None] * self.size
        first = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        with present():
            dist.gather_object(value, values, first, group=self.group)
        return values or []

    def highest(self, number: int) -> int:
        tensor = torch.tensor([number])  # on the CPU: a GPU would be waited for
        with present():
            dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.group)
        return int(tensor)

    def sum_(self, tensor: Tensor) -> Tensor:
        self.sent += 2 * (self.size - 1) * tensor.nbytes // self.size
        with present():
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def gather_rows(self, rows: Tensor, counts: Sequence[int]) -> list[Tensor]:
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        self.sent += (self.size - 1) * padded.nbytes
        with present():
            dist.all_gather(gathered, padded, group=self.group)
        return [part[:count] for part, count in zip(gathered, counts, strict=True)]

    def exchange(self, blocks: Sequence[Tensor], shape: Sequence[int]) -> list[Tensor]:
        sizes, own = [block.numel() for block in blocks], blocks[self.rank].numel()
        received = blocks[0].new_empty(self.size * own)
        self.sent += (sum(sizes) - own) * received.itemsize
        with present():
            dist.all_to_all_single(received, torch.cat([block.flatten() for block in blocks]), [own] * self.size, sizes, group=self.group)
        return [part.view(*shape) for part in received.split(own)]

    def team(self, teams: Sequence[Sequence[int]]) -> World:
        if len(teams) == 1:
            return self
        groups = [dist.new_group(list(ranks), timeout=WAIT) if len(ranks) > 1 else None for ranks in teams]
        number = next(number for number, ranks in enumerate(teams) if self.rank in ranks)
        if groups[number] is None:
            return World()
        return Group(list(teams[number]).index(self.rank), len(teams[number]), groups[number], self.store)

    def speaks(self, error: BaseException) -> bool:
        end = time.monotonic() + PAUSE
        while isinstance(error, Lost) and time.monotonic() < end:
            time.sleep(0.05)
        try:
            return self.store.add("told", 1) == 1
        except RuntimeError:  # the store went with worker 0
            return self.rank == 0 or not isinstance(error, Lost)


@contextmanager
def present() -> Iterator[None]:
    """Inside, an error of the connection raises Lost: that is how a worker learns that another one has died."""
    try:
        yield
    except RuntimeError as error:
        raise Lost(GONE) from error


def joined() -> Group:
    """The default group, of all workers that the launcher has started; it is left when this process ends.

    Raises:
        UserError: the launcher has not said where they meet, or they do not come.
    """
    absent = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if absent:
        size = os.environ["WORLD_SIZE"]
        raise UserError(f"WORLD_SIZE={size} in the environment, but no {absent[0]}; torchrun sets both (docs/many_workers.md)")
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=MEET))
        store.set_timeout(MEET)
        kinds = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(kinds, store=dist.PrefixStore("group", store), rank=rank, world_size=size, timeout=WAIT)
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise UserError(f"the {os.environ['WORLD_SIZE']} workers did not meet at {where} ({str(error).splitlines()[0]})") from error
    atexit.register(left)
    return Group(rank, size, None, dist.PrefixStore("run", store))


def left() -> None:
    """Leave the group."""
    with suppress(RuntimeError, AssertionError):
        dist.destroy_process_group()
