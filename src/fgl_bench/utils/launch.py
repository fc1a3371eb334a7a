"""Detection of the launch: a single process, or one of several workers started by a launcher."""

from __future__ import annotations

import os

from fgl_bench.errors import UserError
from fgl_bench.utils.world import World, enter, world


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


def join() -> World:
    """Join the workers that the launcher has started, until this process ends; a world of one if there is no launcher.

    Raises:
        UserError: they cannot be reached.
    """
    if world().size == 1 and launched()[1] > 1:
        from fgl_bench.utils.group import joined

        enter(joined())
    return world()
