"""Fewer workers in the place of those that made a checkpoint when they shared the clients of a seed.

What a worker holds of a method is laid out for its own clients, and cannot be divided anew in general. So the clients stay in the same
shares, and a process trains several of them, each in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fgl_bench.data.federation import Federation
from fgl_bench.engine.shard import Shard
from fgl_bench.evaluation.history import Outcome
from fgl_bench.results import checkpoints as store
from fgl_bench.results.checkpoints import Unusable
from fgl_bench.runner.checkpoints import APART, Checkpoints
from fgl_bench.runner.deal import kept
from fgl_bench.runner.planning import chunks
from fgl_bench.runner.spec import RunSpec
from fgl_bench.runner.workers import Progress, Row, no_rows, together
from fgl_bench.utils.threads import threads
from fgl_bench.utils.world import World

Simulate = Callable[..., Outcome]


class Silent:
    """Progress of all workers but one."""

    pause, hears = 0.0, False

    def __call__(self, number: int, trips: int, accuracy: Callable[[], float], rows: Callable[[], list[Row]] = no_rows, /) -> None:
        pass

    def cancel(self) -> None:
        pass


def workers_of(run: Checkpoints, seeds: Sequence[int], size: int) -> int:
    """How many workers shared the clients of these seeds in the checkpoints from which ``size`` go on: themselves, or more."""
    for folder in sorted(store.place(run.folder).glob("seeds-*")):
        for made_by in store.sizes(folder):
            if made_by >= size and complete(run, folder, made_by, seeds, quiet=made_by == size):  # of its own, others tell
                return made_by
    return size


def complete(run: Checkpoints, folder: Path, size: int, seeds: Sequence[int], quiet: bool = False) -> bool:
    """Whether ``folder`` has a checkpoint of these seeds whose parts can all be used; unless it is ``quiet``, says why one cannot."""
    parts = [store.of_worker(folder, rank, size) for rank in range(size)]
    names = [[path.name for path in store.found(part)] for part in parts]
    whole = [name for name in names[0] if all(name in each for each in names)]
    if not whole and not quiet:
        run.say(f"the checkpoints in {folder} are not used: none has the parts of all {size} workers")
    for name in whole:
        for part in parts:
            try:
                trained = set(store.about(part / name, run.identity, run.models)["seeds"])
                reason = APART if trained - set(seeds) else ""
            except Unusable as error:
                trained, reason = set(seeds), str(error)
            if reason and trained & set(seeds) and not quiet:  # other workers may train them
                run.say(f"the checkpoint {part / name} is not used: {reason}")
            if reason:
                break
        else:
            return True
    return False


def in_place_of(
    size: int,
    simulate: Simulate,
    spec: RunSpec,
    world: World,
    checkpoints: Checkpoints,
    federations: Sequence[Federation],
    device: torch.device,
    progress: Progress,
) -> Outcome:
    """What ``size`` workers would have made of the run, in this process and the others of ``world``.

    Args:
        simulate: makes one worker's part.
        federations: with the graphs of all clients.
    """
    hosts = [len(part) for part in np.array_split(range(size), world.size)]
    plan, worlds, before = chunks(spec, federations, device)[1], threads(hosts, world), world.sent

    def job(one: World) -> Outcome:
        shard = Shard(spec.settings.num_clients, one)
        mine = [kept(federation, shard) for federation in federations]
        own, told = (checkpoints, progress) if one is worlds[0] else (replace(checkpoints), Silent())
        own.world = one
        return simulate(spec, mine, device, told, plan, shard, own)

    outcomes = together([partial(one.work, partial(job, one)) for one in worlds], plan.threads, progress.cancel)
    world.sent = before + sum(one.sent for one in worlds)  # with what was sent before the checkpoint
    return outcomes[0]
