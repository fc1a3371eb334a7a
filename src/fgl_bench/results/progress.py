"""Showing the progress of a run, or of many: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fgl_bench.results.estimates import duration

LINE_EVERY = 15.0
BAR_EVERY = 0.5


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
        self.title, self.total, self.shown, self.metric, self.canceled = title, total, shown, metric, False
        self.hear, self.hears, self.hearing = hear, bool(hear), threading.Lock()
        self.counts: dict[int, int] = {}
        self.score: float | None = None  # of the program that is furthest: one that begins would let it fall
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TextColumn("trips"),
            TextColumn(f"trained val {metric} {{task.fields[accuracy]}}"), TimeRemainingColumn(), TextColumn("left"),
            console=Console(stderr=True), transient=True,
        ) if shown and sys.stderr.isatty() else None  # fmt: skip
        self.every, self.begin = BAR_EVERY if self.bar else LINE_EVERY, time.monotonic()
        self.due = self.begin + self.every

    def __enter__(self) -> RunProgress:
        if self.bar:
            self.bar.start()
            self.bar.add_task(self.title, total=self.total, accuracy="...")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def cancel(self) -> None:
        """Make every running program stop at its next report."""
        self.canceled = True

    def __call__(
        self, program: int, trips: int, accuracy: Callable[[], float], rows: Callable[[], Sequence[Mapping[str, Any]]] = list
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
            self.bar.update(self.bar.task_ids[0], completed=done, accuracy=f"{100 * self.score:.1f}%")
        else:
            left = (now - self.begin) / max(done, 1) * (self.total - done)
            score = f"val {self.metric} {100 * self.score:.1f}%"
            print(f"{self.title}: {done}/{self.total} trips, {score}, {duration(left)} left", file=sys.stderr, flush=True)


class Display(AbstractContextManager):
    """One bar for all runs on a terminal, above which lines go by; lines alone elsewhere."""

    def __init__(self, total: int):
        self.bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"), console=Console(), disable=not (total and sys.stdout.isatty()),
        )  # fmt: skip
        self.task = self.bar.add_task("", total=total, left="")

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.bar.disable:
            self.bar.stop()

    def say(self, *lines: str) -> None:
        """Print lines, above the bar if there is one."""
        if self.bar.disable:
            print(*lines, sep="\n", flush=True)
        else:
            self.bar.console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    def show(self, done: int, running: Sequence[str], left: float | None) -> None:
        """Show the runs under way, and about how long the rest takes."""
        self.bar.update(self.task, completed=done, description="; ".join(running)[:80], left=f"{duration(left)} left" if left else "")
