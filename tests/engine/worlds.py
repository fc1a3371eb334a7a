"""Workers that are threads of this process: a world without torch.distributed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fgl_bench.utils.threads import threads
from fgl_bench.utils.world import World


def together(size: int, job: Callable[[World], Any]) -> list[Any]:
    """What ``job`` returns on each of so many workers; where one raises, so do the others."""
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda world: world.work(partial(job, world)), threads([size], World(), 20)))
