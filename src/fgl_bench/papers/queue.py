"""Runs the missing runs in separate processes, several at a time, until all are done, time is up or a signal arrives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgl_bench.papers.plan import Cell
from fgl_bench.papers.work import Work
from fgl_bench.results.progress import Display
from fgl_bench.results.render import percent
from fgl_bench.runner.started import InTurn
from fgl_bench.utils.processes import quoted

DONE = ("written: ", "complete already")  # prefixes of output lines with the run's folder


@dataclass(kw_only=True)
class Runs(InTurn):
    """The missing runs, each with its paper.

    Attributes:
        where: presentation keys of every run; None values are left out.
        absent: datasets without raw files; a run on one may download it.
        look: recomputes ``absent``.
    """

    where: Mapping[str, Any]
    absent: Collection[str]
    look: Callable[[], Collection[str]]

    def name(self, work: tuple[Work, Cell]) -> str:
        return work[0].name(work[1])

    def cost(self, work: tuple[Work, Cell]) -> float | None:
        return work[0].cost(work[1])

    def line(self, work: tuple[Work, Cell]) -> list[str]:
        given = [f"{key}={quoted(value)}" for key, value in self.where.items() if value is not None]
        return [sys.executable, "-m", "fgl_bench.cli.main", *work[1].overrides, "progress=false", *given]

    def startable(self) -> Iterator[tuple[Work, Cell]]:
        """Yield runs that can start. On an absent dataset one run at a time, until the dataset is available or its download failed."""
        for pair in list(self.waiting):
            if len(self.running) >= self.jobs:
                return
            dataset = pair[1].dataset
            if dataset in self.absent and any(cell.dataset == dataset for (_, cell), _ in self.running):
                continue
            self.waiting.remove(pair)
            yield pair

    def ended(self, work: tuple[Work, Cell], status: int, lines: list[str], display: Display) -> str | None:
        """Store the result of a run."""
        paper, cell = work
        if cell.dataset in self.absent:
            self.left_out(cell.dataset, display)
        folder = next((Path(line.partition(": ")[2]) for line in reversed(lines) if line.startswith(DONE)), None)
        if status != 0 or folder is None or not paper.add(folder, cell.overrides):
            return None
        paper.write(cell.overrides)
        test = paper.stored[cell.key]["test"]
        return ": " + ", ".join(f"{model} {percent(scores['mean'])}" for model, scores in test.items())

    def left_out(self, dataset: str, display: Display) -> None:
        """Drop the other runs on a dataset that is still absent after a run on it."""
        self.absent = self.look()
        lost = [pair for pair in self.waiting if pair[1].dataset == dataset and dataset in self.absent]
        for pair in lost:
            self.waiting.remove(pair)
        if lost:
            display.say(f"left out: {len(lost)} more run(s) that need dataset={dataset}")
