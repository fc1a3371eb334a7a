"""Making cells as processes of their own, some at a time, the cheap ones first, until all are made, time is up or a signal ends it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fgl_bench.reporting.estimates import Costs, Kind, duration
from fgl_bench.reporting.leaderboard.protocol import Column, Entry, Protocol
from fgl_bench.reporting.leaderboard.record import Record, read_records
from fgl_bench.reporting.papers._sizes import SIZES
from fgl_bench.reporting.progress import Display
from fgl_bench.runner.leaderboard.cell import RUNS
from fgl_bench.utils.allocator import environment
from fgl_bench.utils.processes import end_with
from fgl_bench.utils.scratch import leftovers

POLL = 0.2


@dataclass(frozen=True)
class Cell:
    """A cell to make.

    Attributes:
        cost: seconds that it is likely to take.
    """

    entry: Entry
    column: Column
    cost: float

    @property
    def name(self) -> str:
        return f"{self.entry.name} in {self.column.key}"


@dataclass(frozen=True)
class Sizes:
    sizes: Mapping[str, tuple[int, int]]


def plan(protocol: Protocol, columns: Sequence[Column], entries: Sequence[Entry], folder: Path, rates: Mapping[Kind, float]) -> list[Cell]:
    """The cells that are not complete, the cheap ones first: by measured rates, those of other data sets scaled by size."""
    records = {(record.entry, record.column.key): record for record in read_records(folder)}
    costs = Costs(Sizes(SIZES), (), {**rates, **measured(list(records.values()), protocol)})
    cells = []
    for column in columns:
        for entry in entries:
            record = records.get((entry.name, column.key))
            if record is not None and record.protocol == protocol.digest(entry) and record.complete:
                continue
            cells.append(Cell(entry, column, cost(protocol, entry, column, costs)))
    return sorted(cells, key=lambda cell: cell.cost)


def cost(protocol: Protocol, entry: Entry, column: Column, costs: Costs) -> float:
    """Seconds of all trials and two winners."""
    trials = protocol.trials_of(entry, column)
    rounds = protocol.setting["rounds"]
    epochs = sum(values.get("local_epochs", 1) for values in trials) * rounds
    seeds, tests = len(protocol.tuning_seeds), min(2, len(trials)) * len(protocol.test_seeds)
    tuning = costs.seconds(entry.algorithm, column.dataset, seeds, epochs, entry.model) or 0.0
    return tuning + (costs.seconds(entry.algorithm, column.dataset, tests, epochs / len(trials), entry.model) or 0.0)


def measured(records: Sequence[Record], protocol: Protocol) -> dict[Kind, float]:
    """Seconds per seed, round and local epoch of cells' trials."""
    found: dict[Kind, float] = {}
    for record in records:
        epochs = sum(trial.values.get("local_epochs", 1) for trial in record.trials) * protocol.setting["rounds"]
        if epochs:
            seconds = sum(trial.seconds for trial in record.trials)
            found[record.algorithm, record.model, record.dataset] = seconds / (epochs * len(protocol.tuning_seeds))
    return found


@dataclass
class Job:
    cell: Cell
    process: subprocess.Popen
    log: IO[str]
    begin: float


@dataclass
class Queue:
    """The cells to make; the reasons of those that fail go to ``failures``.

    Attributes:
        protocol: its file.
        folder: of the leaderboard's cells.
        jobs: how many at a time.
        until: start no run that would end later, by ``time.time``.
        where: keys of every run that change no number.
    """

    protocol: Path
    waiting: list[Cell]
    folder: Path
    jobs: int
    until: float
    where: Sequence[str]
    running: list[Job] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stopping: bool = False

    def stop(self, *_: object) -> None:
        """Handler of Ctrl-C and of an end signal."""
        self.stopping = True

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with leftovers(RUNS, self.folder) as gone:  # of processes that were killed
            for path in gone:
                shutil.rmtree(path, ignore_errors=True)
        previous = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM)}
        with Display(len(self.waiting)) as display:
            try:
                self.loop(display)
            finally:
                for job in self.running:
                    job.process.terminate()
                for job in self.running:
                    job.process.wait()
                    job.log.close()
                for number, handler in previous.items():
                    signal.signal(number, handler)

    def loop(self, display: Display) -> None:
        made = 0
        while (self.waiting or self.running) and not self.stopping:
            while self.waiting and len(self.running) < self.jobs:
                if time.time() >= self.until:
                    display.say(f"left out, no time: {len(self.waiting)} cell(s)")
                    self.waiting.clear()
                    break
                self.start(self.waiting.pop(0), display)
            for job in [job for job in self.running if not self.stopping and job.process.poll() is not None]:
                self.running.remove(job)
                made += 1
                self.finish(job, display)
            rest = sum(cell.cost for cell in [*self.waiting, *(job.cell for job in self.running)])
            display.show(made, [job.cell.name for job in self.running], rest / self.jobs)
            if self.running:
                time.sleep(POLL)

    def start(self, cell: Cell, display: Display) -> None:
        display.say(f"start: {cell.name} ({duration(cell.cost or None)})")
        line = [sys.executable, "-m", "fgl_bench.runner.leaderboard", str(self.protocol), cell.entry.name]
        line += [cell.column.dataset, cell.column.split, str(self.folder), str(self.until), *self.where]
        log = tempfile.TemporaryFile("w+", encoding="utf-8")
        dying = end_with(os.getpid()) if sys.platform == "linux" else None
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, env=environment(), preexec_fn=dying, start_new_session=True)
        self.running.append(Job(cell, process, log, time.monotonic()))

    def finish(self, job: Job, display: Display) -> None:
        """Tell what became of a cell."""
        job.log.seek(0)
        told = [line.strip() for line in job.log.read().splitlines() if line.strip()][-6:]
        job.log.close()
        seconds = time.monotonic() - job.begin
        if job.process.returncode == 0:
            display.say(f"done: {job.cell.name} in {seconds:.0f} s", *(f"    {line}" for line in told if "made anew" in line))
            return
        self.failures.append(f"{job.cell.name}: {told[-1] if told else f'exit status {job.process.returncode}'}")
        display.say(f"failed: {job.cell.name} after {seconds:.0f} s (exit {job.process.returncode})", *(f"    {line}" for line in told))
