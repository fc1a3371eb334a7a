"""Computes missing cells in separate processes, several at a time, cheap ones first, until all are done, time is up or a signal arrives."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fgl_bench.leaderboard.cell import BoardCell
from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol
from fgl_bench.leaderboard.record import Record, read_records
from fgl_bench.results.estimates import Costs, Kind, round_cost
from fgl_bench.results.progress import Display
from fgl_bench.runner.started import InTurn

Work = tuple[BoardCell, float]  # a cell, and its estimated seconds


def plan(
    protocol: Protocol, columns: Sequence[BoardColumn], entries: Sequence[Entry], folder: Path, rates: Mapping[Kind, float]
) -> list[Work]:
    """Return incomplete cells, cheapest first, by measured rates, and those too expensive last; other datasets are scaled by size."""
    records = {(record.entry, record.column): record for record in read_records(folder)}
    costs = Costs((), {**rates, **measured(protocol, list(records.values()))})
    work = []
    for column in columns:
        for entry in entries:
            record = records.get((entry.name, column.key))
            if record is None or record.protocol != protocol.digest(entry, column) or not record.complete:
                work.append((BoardCell(protocol, entry, column, folder), cost(protocol, entry, column, costs)))
    return sorted(work, key=lambda pair: (protocol.later(pair[0].entry, pair[0].column), pair[1]))


def cost(protocol: Protocol, entry: Entry, column: BoardColumn, costs: Costs) -> float:
    """Estimate the seconds of all trials, the default and the winner."""
    trials = protocol.trials_of(entry, column)
    rounds = sum(round_cost(values.get("local_epochs", 1)) for values in trials) * protocol.setting["rounds"]
    seeds, tests = len(protocol.tuning_seeds), min(2, len(trials)) * len(protocol.test_seeds)
    kind = Kind(entry.algorithm, entry.model, column.graph)
    return sum(costs.seconds(kind, *work) or 0.0 for work in ((seeds, rounds), (tests, rounds / len(trials))))


def measured(protocol: Protocol, records: Sequence[Record]) -> dict[Kind, float]:
    """Return seconds per seed and round with one local epoch, from trials of the cells."""
    graphs = {column.key: column.graph for column in protocol.columns}
    found: dict[Kind, float] = {}
    for record in records:
        rounds = sum(round_cost(trial.values.get("local_epochs", 1)) for trial in record.trials) * protocol.setting["rounds"]
        if rounds and record.column in graphs:
            seconds = sum(trial.seconds for trial in record.trials)
            found[Kind(record.algorithm, record.model, graphs[record.column])] = seconds / (rounds * len(protocol.tuning_seeds))
    return found


@dataclass(kw_only=True)
class Cells(InTurn):
    """The missing cells.

    Attributes:
        protocol: file of the protocol.
        folder: folder of the leaderboard's cells.
        where: keys of every run that do not affect results.
    """

    ends_in_time = True

    protocol: Path
    folder: Path
    where: Sequence[str]

    def name(self, work: Work) -> str:
        return work[0].name

    def cost(self, work: Work) -> float | None:
        return work[1] or None

    def line(self, work: Work) -> list[str]:
        cell, _ = work
        where = [cell.entry.name, cell.column.key, str(self.folder), str(self.until), *self.where]
        return [sys.executable, "-m", "fgl_bench.leaderboard.cell", str(self.protocol), *where]

    def ended(self, work: Work, status: int, lines: list[str], display: Display) -> str | None:
        return None if status else "".join(f"\n    {line}" for line in lines if "recomputed" in line)
