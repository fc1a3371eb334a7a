"""Making cells as processes of their own, some at a time, the cheap ones first, until all are made, time is up or a signal ends it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fgl_bench.leaderboard.cell import RUNS
from fgl_bench.leaderboard.protocol import Column, Entry, Protocol
from fgl_bench.leaderboard.record import Record, read_records
from fgl_bench.results.estimates import Costs, Kind, duration, round_cost
from fgl_bench.results.progress import Display
from fgl_bench.runner.started import InTurn, Started
from fgl_bench.utils.scratch import leftovers


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


def plan(protocol: Protocol, columns: Sequence[Column], entries: Sequence[Entry], folder: Path, rates: Mapping[Kind, float]) -> list[Cell]:
    """The cells that are not complete, the cheap ones first: by measured rates, those of other data sets scaled by size."""
    records = {(record.entry, record.column.key): record for record in read_records(folder)}
    costs = Costs((), {**rates, **measured(list(records.values()), protocol)})
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
    rounds = sum(round_cost(values.get("local_epochs", 1)) for values in trials) * protocol.setting["rounds"]
    seeds, tests = len(protocol.tuning_seeds), min(2, len(trials)) * len(protocol.test_seeds)
    kind = Kind(entry.algorithm, entry.model, column.dataset)
    return sum(costs.seconds(kind, *work) or 0.0 for work in ((seeds, rounds), (tests, rounds / len(trials))))


def measured(records: Sequence[Record], protocol: Protocol) -> dict[Kind, float]:
    """Seconds per seed and round of one local epoch of cells' trials."""
    found: dict[Kind, float] = {}
    for record in records:
        rounds = sum(round_cost(trial.values.get("local_epochs", 1)) for trial in record.trials) * protocol.setting["rounds"]
        if rounds:
            seconds = sum(trial.seconds for trial in record.trials)
            found[Kind(record.algorithm, record.model, record.dataset)] = seconds / (rounds * len(protocol.tuning_seeds))
    return found


@dataclass(kw_only=True)
class Queue(InTurn[Cell, str]):
    """The cells to make.

    Attributes:
        protocol: its file.
        folder: of the leaderboard's cells.
        until: start no run that would end later, by ``time.time``.
        where: keys of every run that change no number.
    """

    protocol: Path
    folder: Path
    until: float
    where: Sequence[str]

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with leftovers(RUNS, self.folder) as gone:  # of processes that were killed
            for path in gone:
                shutil.rmtree(path, ignore_errors=True)
        super().make()

    def name(self, work: Cell) -> str:
        return work.name

    def rest(self) -> float:
        return sum(cell.cost for cell in [*self.waiting, *(cell for cell, _ in self.running)])

    def begin(self, display: Display) -> int:
        while self.waiting and len(self.running) < self.jobs:
            if time.time() >= self.until:
                display.say(f"left out, no time: {len(self.waiting)} cell(s)")
                self.waiting.clear()
                break
            cell = self.waiting.pop(0)
            display.say(f"start: {cell.name} ({duration(cell.cost or None)})")
            line = [sys.executable, "-m", "fgl_bench.leaderboard", str(self.protocol), cell.entry.name]
            line += [cell.column.dataset, cell.column.split, str(self.folder), str(self.until), *self.where]
            self.running.append((cell, Started.of(line, own_session=True)))
        return 0

    def end(self, work: Cell, started: Started, display: Display) -> int:
        """Tell what became of a cell."""
        seconds, told = started.seconds, started.told()
        if started.process.returncode == 0:
            display.say(f"done: {work.name} in {seconds:.0f} s", *(f"    {line}" for line in told if "made anew" in line))
            return 0
        self.failures.append(f"{work.name}: {told[-1] if told else f'exit status {started.process.returncode}'}")
        how = f"after {seconds:.0f} s (exit {started.process.returncode})"
        display.say(f"failed: {work.name} {how}", *(f"    {line}" for line in told))
        return 0
