"""Independent jobs side by side on the cores of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from fgl_bench.engine.memory import return_freed_memory

T = TypeVar("T")


def groups(jobs: int, at_once: int) -> list[int]:
    """How many jobs to run together, in turn: one a core, and what would be left over with the last of them where ``at_once`` allows.

    Three on two cores take half as long again as two; two and then one take twice as long.
    """
    size = max(1, min(at_once, torch.get_num_threads()))
    full, rest = divmod(jobs, size)
    if full and rest and size + rest <= at_once:
        return [size] * (full - 1) + [size + rest]
    return [size] * full + [rest] * bool(rest)


def side_by_side(jobs: Sequence[Callable[[], T]], at_once: int, inner: int, cancel: Callable[[], None]) -> list[T]:
    """Call every job and return the results in order, in :func:`groups` of threads that share torch's threads.

    Programs of small tensors scale better over independent jobs than inside one operation, and torch lets go of Python's lock
    while it computes. The threads that a last, smaller group leaves idle go to that group.

    Args:
        at_once: most jobs at a time.
        inner: most torch threads inside one job. Small operations lose by more than one, and badly so on a busy machine, where
            they wait for each other.
        cancel: makes running jobs raise soon; called when one has failed or the user interrupts.

    Raises:
        whatever the first failing job raised.
    """
    total = torch.get_num_threads()
    results: list[T] = []
    try:
        for size in groups(len(jobs), at_once):
            group = jobs[len(results) : len(results) + size]
            threads = max(1, min(inner, total // len(group)))
            torch.set_num_threads(threads)
            results += [group[0]()] if len(group) == 1 else _together(group, threads, cancel)
            return_freed_memory()
    finally:
        torch.set_num_threads(total)
    return results


def _together(jobs: Sequence[Callable[[], T]], threads: int, cancel: Callable[[], None]) -> list[T]:
    results: list[T | None] = [None] * len(jobs)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        torch.set_num_threads(threads)  # of this thread
        try:
            results[number] = jobs[number]()
        except BaseException as error:
            errors.append(error)
            cancel()

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(jobs))]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException:  # Ctrl-C reaches the main thread only
        cancel()
        for worker in workers:
            worker.join(timeout=5)
        raise
    if errors:
        raise errors[0]
    return results
