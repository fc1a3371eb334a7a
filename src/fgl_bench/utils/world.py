"""The workers that share a run, and their communication.

A worker is a process with a rank, as torchrun numbers them. A process that was started on its own is a world of one: it joins nothing
and sends nothing. ``utils/group.py`` has a world of processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from fgl_bench.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class Lost(UserError):
    """Another worker has died."""


class World:
    """A world of one.

    Attributes:
        rank, size: the number of this worker, from 0, and how many there are.
        sent: bytes of tensors that this worker has sent to others.
    """

    rank, size, sent = 0, 1, 0

    def first(self, call: Callable[[], T]) -> T:
        """Return on every worker the result of ``call`` on worker 0; the others do not call it."""
        return call()

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Worker 0 runs first, the others when it is done, so that they find its results in the cache."""
        yield

    def gather(self, value: T) -> list[T]:
        """The values of all workers, by rank, on every worker."""
        return [value]

    def collect(self, value: T) -> list[T]:
        """The values of all workers, by rank, on worker 0; nothing on the others."""
        return [] if self.rank else [value]

    def highest(self, number: int) -> int:
        """The highest of the workers' numbers, on every worker."""
        return number

    def sum_(self, tensor: Tensor) -> Tensor:
        """``tensor``, replaced by its sum over all workers."""
        return tensor

    def gather_rows(self, rows: Tensor, counts: Sequence[int]) -> list[Tensor]:
        """The rows ``[k, ...]`` of all workers, by rank, on every worker; worker r has ``counts[r]`` of them."""
        return [rows]

    def exchange(self, blocks: Sequence[Tensor], shape: Sequence[int]) -> list[Tensor]:
        """Send ``blocks[r]`` to worker r; returns the blocks that this worker is sent, by rank, all of this ``shape``."""
        return list(blocks)

    def team(self, teams: Sequence[Sequence[int]]) -> World:
        """The world of this worker's team, where ``teams`` are the ranks in each; every worker calls it with the same teams."""
        return self

    def speaks(self, error: BaseException) -> bool:
        """Return True if this worker prints the error: the first that fails reports for all."""
        return True


_current = World()


def world() -> World:
    """The world of this process."""
    return _current


def enter(now: World) -> None:
    """Make ``now`` the world of this process."""
    global _current
    _current = now


def launched() -> tuple[int, int]:
    """The rank of this process and the number of workers, from the variables that torchrun sets; (0, 1) without them.

    Raises:
        UserError: they are no ranks.
    """
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    values = {name: os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK")}
    for name, text in values.items():
        if not text.isdecimal():
            raise UserError(f"{name}={text} in the environment is no number; torchrun sets both (docs/many_workers.md)")
    rank, size = int(values["RANK"]), int(values["WORLD_SIZE"])
    if rank >= max(size, 1):
        raise UserError(f"RANK={rank} in the environment does not fit WORLD_SIZE={size}; torchrun sets both (docs/many_workers.md)")
    return rank, max(size, 1)


def local_rank() -> int | None:
    """The number of this worker on its machine; None in a world of one."""
    return int(os.environ.get("LOCAL_RANK", os.environ["RANK"])) if world().size > 1 else None
