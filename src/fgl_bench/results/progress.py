"""Showing the progress of a run, or of many: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fgl_bench.results.callbacks import Callback, Report
from fgl_bench.results.estimates import duration

LINE_EVERY = 15.0


class ProgressBar(Callback):
    """Shows the client trips of all seeds on stderr.

    Args:
        title: stands before the numbers.
        total: client trips of the run.
        metric: the name of the validation score; the models are the trained ones.
    """

    def __init__(self, title: str, total: int, metric: str):
        self.title, self.total, self.metric = title, total, metric
        self.counts: dict[tuple[int, ...], int] = {}
        self.score = 0.0  # of the program that is furthest: one that begins would let it fall
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TextColumn("trips"),
            TextColumn(f"trained val {metric} {{task.fields[score]}}"), TimeRemainingColumn(), TextColumn("left"),
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self.begin = time.monotonic()
        self.due = self.begin + LINE_EVERY

    def run_begin(self) -> None:
        self.bar.start()
        self.bar.add_task(self.title, total=self.total, score="...")

    def close(self) -> None:
        if not self.bar.disable:
            self.bar.stop()

    def report(self, report: Report) -> None:
        self.counts[report.seeds] = report.trips
        now, done = time.monotonic(), sum(self.counts.values())
        if report.trips >= max(self.counts.values()):
            self.score = report.score
        self.bar.update(self.bar.task_ids[0], completed=done, score=f"{100 * self.score:.1f}%")
        if self.bar.disable and now >= self.due:
            self.due = now + LINE_EVERY
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
