"""The devices of a run, and its seeds dealt over several of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch

from fgl_bench.data.federation import Federation
from fgl_bench.evaluation.history import Outcome
from fgl_bench.runner.workers import run_group
from fgl_bench.utils.processes import JOB
from fgl_bench.utils.world import local_rank


def pick_devices(name: str) -> list[torch.device]:
    """The devices of ``device=NAME``: ``cuda`` is every GPU, ``cuda:1`` one GPU, ``auto`` every GPU or else the CPU.

    Of the jobs of a launcher and of several workers, which run at the same time, each takes one GPU, in turn.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    count = torch.cuda.device_count() if name == "cuda" else 1
    if name != "cuda" or count < 2:
        return [torch.device(name)]
    worker, job = local_rank(), os.environ.get(JOB)
    number = worker if worker is not None else None if job is None else int(job)
    numbers = range(count) if number is None else [number % count]
    return [torch.device("cuda", number) for number in numbers]


def run_on(
    devices: Sequence[torch.device],
    federations: Sequence[Federation],
    simulate: Callable[[Sequence[Federation], torch.device], Outcome],
    cancel: Callable[[], None],
) -> Outcome:
    """Divide the seeds evenly among the devices and simulate every part on its own, side by side in threads.

    Seeds share nothing, so the scores do not depend on the division.

    Args:
        cancel: called if a part has failed.
    """
    parts = [part for part in np.array_split(np.arange(len(federations)), len(devices)) if part.size]

    if len(parts) == 1 and devices[0].type == "cpu":
        return simulate(federations, devices[0])

    def on(device: torch.device, part: np.ndarray) -> Outcome:
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return simulate([federations[seed] for seed in part], device)

    jobs = [partial(on, device, part) for device, part in zip(devices, parts, strict=False)]
    return joined(run_group(jobs, torch.get_num_threads(), cancel))


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of all seeds from those of some of them each, in order."""
    first = outcomes[0]
    return Outcome(
        [history for outcome in outcomes for history in outcome.histories],
        {at: np.concatenate([outcome.mixing[at] for outcome in outcomes]) for at in first.mixing},
        {at: np.concatenate([outcome.similarity[at] for outcome in outcomes]) for at in first.similarity},
        {name: [value for outcome in outcomes for value in outcome.costs[name]] for name in first.costs},
        None if first.exchanged is None else np.concatenate([outcome.exchanged for outcome in outcomes if outcome.exchanged is not None]),
        {name: np.concatenate([outcome.final_state[name] for outcome in outcomes]) for name in first.final_state},
        {name: value for outcome in outcomes for name, value in outcome.models.items()},
        [each for outcome in outcomes for each in outcome.unseen],
    )
