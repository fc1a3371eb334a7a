"""Showing the progress of a run, or of many: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fgl_bench.results.estimates import duration

LINE_EVERY = 15.0
BAR_EVERY = 0.5


def no_rows() -> list[dict[str, Any]]:
    return []


class RunProgress(AbstractContextManager):
    """Counts client trips of all seeds; the accuracy is read only when it is shown, since reading waits for the device.

    Args:
        metric: that the validation score is measured by; the models are the trained ones.
        hear: called with the row of every evaluation point, in one thread at a time.
    """

    pause = 0.05

    def __init__(
        self, title: str, total: int, shown: bool, metric: str = "accuracy", hear: Sequence[Callable[[Mapping[str, Any]], None]] = ()
    ):
        self.title, self.total, self.canceled = title, total, False
        self.metric, self.hear, self.hears, self.hearing = metric, hear, bool(hear), threading.Lock()
        self.counts: dict[int, int] = {}
        self.score: float | None = None  # of the program that is furthest: one that begins would let it fall
        self.live = shown and sys.stderr.isatty()
        self.every = BAR_EVERY if self.live else LINE_EVERY
        self.shown, self.begin = shown, time.monotonic()
        self.due = self.begin + self.every
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TextColumn("trips"),
            TextColumn(f"trained val {metric} {{task.fields[accuracy]}}"), TimeRemainingColumn(), TextColumn("left"),
            console=Console(stderr=True), transient=True,
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
        self.canceled = True

    def __call__(
        self, program: int, trips: int, accuracy: Callable[[], float], rows: Callable[[], Sequence[Mapping[str, Any]]] = no_rows
    ) -> None:
        """Report ``trips`` done by one of the programs that train side by side.

        Raises:
            KeyboardInterrupt: the run was canceled.
        """
        if self.canceled:
            raise KeyboardInterrupt
        if self.hears:
            with self.hearing:
                for row in rows():
                    for hear in self.hear:
                        hear(row)
        self.counts[program] = trips
        now = time.monotonic()
        if not self.shown or now < self.due:
            return
        self.due, done = now + self.every, sum(self.counts.values())
        if self.score is None or trips >= max(self.counts.values()):
            self.score = accuracy()
        if self.bar:
            self.bar.update(self.task, completed=done, accuracy=f"{100 * self.score:.1f}%")
        else:
            left = (now - self.begin) / max(done, 1) * (self.total - done)
            score = f"val {self.metric} {100 * self.score:.1f}%"
            print(f"{self.title}: {done}/{self.total} trips, {score}, {duration(left)} left", file=sys.stderr, flush=True)


class Display:
    """One bar for all runs on a terminal, above which lines go by; lines alone elsewhere."""

    def __init__(self, total: int):
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        if sys.stdout.isatty() and total:
            self.bar = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"), console=Console(),
            )  # fmt: skip
            self.task = self.bar.add_task("", total=total, left="")

    def __enter__(self) -> Display:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def say(self, *lines: str) -> None:
        if self.bar:
            self.bar.console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
        else:
            print(*lines, sep="\n", flush=True)

    def show(self, done: int, running: Sequence[str], left: float | None) -> None:
        """What is under way, and about how long the rest takes."""
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=done, description="; ".join(running)[:80], left=f"{duration(left)} left" if left else "")
