"""Making runs as processes of their own, some at a time, until all are made, time is up or a signal ends it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgl_bench.papers.plan import Cell
from fgl_bench.papers.work import Work
from fgl_bench.results.estimates import duration
from fgl_bench.results.progress import Display
from fgl_bench.runner.started import InTurn, Started
from fgl_bench.utils.processes import quoted

DONE = ("written: ", "complete already")  # lines of a run that name its folder


@dataclass(frozen=True)
class Failure:
    """A run that was not made, and the last line that it said."""

    name: str
    reason: str
    command: str


@dataclass(kw_only=True)
class Runs(InTurn):
    """The runs to make, each with the paper that wants it.

    Attributes:
        until: none is started that would end later than this, by ``time.monotonic``.
        where: presentation keys of every run; None is left out.
        absent: datasets without raw files; a run on one may download it.
        look: finds those datasets anew.
    """

    until: float
    where: Mapping[str, Any]
    absent: Collection[str]
    look: Callable[[], Collection[str]]

    def name(self, work: tuple[Work, Cell]) -> str:
        return work[1].name

    def cost(self, work: tuple[Work, Cell]) -> float | None:
        return work[0].cost(work[1])

    def begin(self, display: Display) -> int:
        left_out = 0
        for work, cell in self.startable():
            if time.monotonic() + (work.cost(cell) or 0) > self.until:
                display.say(f"left out, no time: {work.name(cell)}")
                left_out += 1
                continue
            display.say(f"start: {work.name(cell)} ({duration(work.cost(cell))})")
            line = [sys.executable, "-m", "fgl_bench.cli.main", *cell.overrides, "progress=false"]
            line += [f"{key}={quoted(value)}" for key, value in self.where.items() if value is not None]
            self.running.append(((work, cell), Started(line)))
        return left_out

    def startable(self) -> Iterator[tuple[Work, Cell]]:
        """Take runs that wait while there is room; of an absent dataset one at a time, until it is there or known not to come."""
        for pair in list(self.waiting):
            if len(self.running) >= self.jobs:
                return
            dataset = pair[1].dataset
            if dataset in self.absent and any(cell.dataset == dataset for (_, cell), _ in self.running):
                continue
            self.waiting.remove(pair)
            yield pair

    def end(self, work: tuple[Work, Cell], started: Started, display: Display) -> int:
        """Keep the result of a run that has ended, or note that there is none."""
        (paper, cell), seconds, told = work, started.seconds, started.last_lines()
        dropped = self.left_out(cell.dataset, display) if cell.dataset in self.absent else 0
        folder = next((Path(line.partition(": ")[2]) for line in reversed(told) if line.startswith(DONE)), None)
        if started.returncode == 0 and folder is not None and paper.keep(folder, cell.overrides):
            test = paper.stored[cell.key]["test"]
            shown = ", ".join(f"{model} {percent(scores['mean'])}" for model, scores in test.items())
            display.say(f"done: {paper.name(cell)} in {seconds:.0f} s: {shown}")
            paper.write(cell.overrides)
            return dropped
        told = told or [f"exit status {started.returncode}"]
        self.failures.append(Failure(paper.name(cell), told[-1], cell.command))
        how = f"after {seconds:.0f} s (exit {started.returncode})"
        display.say(f"failed: {paper.name(cell)} {how}", *(f"    {line}" for line in told))
        return dropped

    def left_out(self, dataset: str, display: Display) -> int:
        """After a run on an absent dataset: leave the others on it out if it is still absent; returns their number."""
        self.absent = self.look()
        lost = [pair for pair in self.waiting if pair[1].dataset == dataset and dataset in self.absent]
        for pair in lost:
            self.waiting.remove(pair)
        if lost:
            display.say(f"left out: {len(lost)} more run(s) that need dataset={dataset}")
        return len(lost)


def percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.1f}"
