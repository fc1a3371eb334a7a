"""Showing a run's progress: a live bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_EVERY = 15.0
BAR_EVERY = 0.5


class RunProgress(AbstractContextManager):
    """Counts client trips of all seeds; the accuracy is read only when it is shown, since reading waits for the device."""

    def __init__(self, title: str, total: int, shown: bool):
        self.title, self.total, self.cancelled = title, total, False
        self.counts: dict[int, int] = {}
        self.live = shown and sys.stderr.isatty()
        self.every = BAR_EVERY if self.live else LINE_EVERY
        self.shown, self.begin = shown, time.monotonic()
        self.due = self.begin + self.every
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("trips  val {task.fields[accuracy]}"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        ) if self.live else None  # fmt: skip

    def __enter__(self) -> RunProgress:
        if self.bar:
            self.bar.start()
            self.task = self.bar.add_task(self.title, total=self.total, accuracy="...")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def cancel(self) -> None:
        """Make every running program stop at its next report."""
        self.cancelled = True

    def __call__(self, program: int, trips: int, accuracy: Callable[[], float]) -> None:
        """Report ``trips`` done by one of the programs that train side by side.

        Raises:
            KeyboardInterrupt: the run was cancelled.
        """
        if self.cancelled:
            raise KeyboardInterrupt
        self.counts[program] = trips
        now = time.monotonic()
        if not self.shown or now < self.due:
            return
        self.due, done = now + self.every, sum(self.counts.values())
        if self.bar:
            self.bar.update(self.task, completed=done, accuracy=f"{100 * accuracy():.1f}%")
        else:
            left = (now - self.begin) / max(done, 1) * (self.total - done)
            line = f"{self.title}: {done}/{self.total} trips, val {100 * accuracy():.1f}%, about {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)
