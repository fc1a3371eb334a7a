"""Callbacks that watch a run in the process that was started: progress, trackers, a user's function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

PAUSE = 0.5


class Report(NamedTuple):
    """The progress of seeds that are trained together.

    Attributes:
        seeds: of the program.
        trips: client trips done, of all these seeds.
        score: pooled validation score of the models that clients trained last.
        points: evaluation points since the last report, rows of ``history.csv`` without bytes and costs; see ``Callback.reads_points``.
    """

    seeds: tuple[int, ...]
    trips: int
    score: float
    points: Sequence[Mapping[str, Any]] = ()


Send = Callable[[Report], None]


class Callback:
    """Watches a run. Hooks do nothing by default, and are called in one thread at a time.

    Attributes:
        pause: fewest seconds between two reports of a program, except the last one.
        reads_points: True if reports must have the evaluation points.
    """

    pause = PAUSE
    reads_points = False

    def run_begin(self) -> None:
        """Training begins."""

    def report(self, report: Report) -> None:
        """Programs have trained on. An exception ends the run."""

    def run_end(self, folder: Path) -> None:
        """The complete run is in ``folder``."""

    def close(self) -> None:
        """The run is complete or has failed; called after every ``run_begin``."""


class Callbacks(AbstractContextManager):
    """The callbacks of a run, called in order."""

    def __init__(self, callbacks: Sequence[Callback] = ()):
        self.callbacks, self.canceled, self.lock, self.open = callbacks, False, threading.Lock(), ExitStack()
        self.pause = min((callback.pause for callback in callbacks), default=PAUSE)
        self.reads_points = any(callback.reads_points for callback in callbacks)

    def __enter__(self) -> Callbacks:
        with ExitStack() as stack:
            for callback in self.callbacks:
                stack.callback(callback.close)
                callback.run_begin()
            self.open = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self.open.__exit__(*error)

    def cancel(self) -> None:
        """Make every running program stop at its next report."""
        self.canceled = True

    def report(self, report: Report) -> None:
        """Pass on a report; raises KeyboardInterrupt if the run was canceled."""
        if self.canceled:
            raise KeyboardInterrupt
        with self.lock:
            for callback in self.callbacks:
                callback.report(report)

    def run_end(self, folder: Path) -> None:
        """Call every callback's ``run_end``."""
        for callback in self.callbacks:
            callback.run_end(folder)


class PointCallback(Callback):
    """Calls a function with every evaluation point; an exception from it ends the run and discards its checkpoints.

    Args:
        watch: the function of a row of ``history.csv`` without bytes and costs.
        discard: called at the end if ``watch`` has ended the run.
    """

    pause = 0.05
    reads_points = True

    def __init__(self, watch: Callable[[Mapping[str, Any]], None], discard: Callable[[], None]):
        self.watch, self.discard, self.ended = watch, discard, False

    def report(self, report: Report) -> None:
        try:
            for point in report.points:
                self.watch(point)
        except Exception:
            self.ended = True
            raise

    def close(self) -> None:
        if self.ended:
            self.discard()
