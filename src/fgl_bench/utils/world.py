"""The workers that make a run together, and what passes between them.

A worker is a process with a rank, as torchrun numbers them. A process that was started on its own is a world of one: it joins nothing
and sends nothing. The other kind of world is in ``utils/group.py``.
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
    """Another worker is not there any more."""


class World:
    """A world of one.

    Attributes:
        rank, size: the number of this worker, from 0, and how many there are.
        sent: bytes of tensors that this worker has sent to others.
    """

    rank, size, sent = 0, 1, 0

    def first(self, call: Callable[[], T]) -> T:
        """What ``call`` returns on worker 0, on every worker; the others do not call it."""
        return call()

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Worker 0 goes first, the others when it is done: what it has put into a cache they find there."""
        yield

    def gather(self, value: T) -> list[T]:
        """The values of all workers, by rank, on every worker."""
        return [value]

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
        """Whether this worker prints the error: the first that fails speaks for all."""
        return True


_current = World()


def world() -> World:
    """The world of this process."""
    return _current


def launched() -> tuple[int, int]:
    """The rank of this process and the number of workers, from the variables that torchrun sets; (0, 1) without them.

    Raises:
        UserError: they are no ranks.
    """
    values = {name: os.environ.get(name, default) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))}
    for name, text in values.items():
        if not text.isdecimal():
            raise UserError(f"{name}={text} in the environment is no number; torchrun sets it (docs/many_workers.md)")
    rank, size = int(values["RANK"]), int(values["WORLD_SIZE"])
    if rank >= max(size, 1):
        raise UserError(f"RANK={rank} in the environment does not fit WORLD_SIZE={size}; torchrun sets both (docs/many_workers.md)")
    return rank, size


def local_rank() -> int | None:
    """The number of this worker on its machine; None in a world of one."""
    return int(os.environ.get("LOCAL_RANK", os.environ["RANK"])) if _current.size > 1 else None


def join() -> World:
    """Join the workers that the launcher has started, until this process ends; a world of one if there is no launcher.

    Raises:
        UserError: they cannot be reached.
    """
    global _current
    if _current.size == 1 and launched()[1] > 1:
        from fgl_bench.utils.group import joined

        _current = joined()
    return _current
