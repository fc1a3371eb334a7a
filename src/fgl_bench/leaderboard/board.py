"""Cells of the leaderboard: scores, and the largest complete part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol
from fgl_bench.leaderboard.record import Record, Scored, current, read_records

KINDS = ("primary", "received", "trained", "default")
Scores = Mapping[str, np.ndarray]  # by entry, one score per test seed


@dataclass(frozen=True)
class Board:
    """Cells of one protocol.

    Attributes:
        records: cells made under the protocol.
        others: cells of other protocols, not shown.
        guests: entries outside the protocol, such as a user's.
    """

    protocol: Protocol
    records: Sequence[Record]
    others: Sequence[Record] = ()
    guests: tuple[Entry, ...] = ()

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Record]:
        """Cells by entry and column key."""
        return {(record.entry, record.column): record for record in self.records}

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """Entries that have a cell by name: guests, methods in the protocol's order, references."""
        present = {record.entry for record in self.records}
        known = [*self.guests, *sorted(self.protocol.entries, key=lambda entry: entry.reference)]
        return {entry.name: entry for entry in known if entry.name in present}

    @property
    def columns(self) -> list[BoardColumn]:
        """Columns that have a cell, in the protocol's order."""
        present = {record.column for record in self.records}
        return [column for column in self.protocol.columns if column.key in present]

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Return the names that are not references."""
        return [name for name in names if not self.entries[name].reference]

    def scores(self, column: str, kind: str = "primary") -> Scores:
        """Return test scores by entry, in seed order, for entries with all scores: means over fewer seeds would favor failures.

        Args:
            kind: ``received`` or ``trained`` of the tuned configuration; its ``primary`` one, which validates better; or that of the
                ``default`` configuration.
        """
        found = {}
        for name in self.entries:
            record = self.cells.get((name, column))
            scored = None if record is None else record.default if kind == "default" else record.tuned
            scores = [] if scored is None else scored.scores[kind if kind in scored.scores else scored.model]
            if len(scores) == len(self.protocol.test_seeds) and None not in scores:
                found[name] = np.array(scores, dtype=np.float64)
        return found

    def tuned(self, names: Sequence[str], column: str) -> Mapping[str, Scored]:
        """Return the tuned configurations of a column by entry."""
        cells = {name: self.cells.get((name, column)) for name in names}
        return {name: record.tuned for name, record in cells.items() if record is not None and record.tuned is not None}

    def means(self, kind: str = "primary") -> pd.DataFrame:
        """Return mean test scores, entries by columns, NaN where a cell is missing."""
        means = {column.key: {name: scores.mean() for name, scores in self.scores(column.key, kind).items()} for column in self.columns}
        return pd.DataFrame(means, index=list(self.entries), columns=list(means), dtype=np.float64)

    def whole(self, kind: str = "primary") -> tuple[list[str], list[BoardColumn]]:
        """Return ranked entries and columns with all scores, by repeatedly dropping the entry or column with the most missing ones.

        Ties drop the column. Guests are never dropped.
        """
        lacking = self.means(kind).loc[self.ranked(list(self.entries))].isna()
        lacking = lacking.loc[~lacking.all(axis=1), ~lacking.all(axis=0)]
        guests = [guest.name for guest in self.guests]
        while lacking.to_numpy().any():
            rows, columns = lacking.mean(axis=1).drop(guests, errors="ignore"), lacking.mean(axis=0)
            if len(rows) and rows.max() > columns.max():
                lacking = lacking.drop(index=rows.idxmax())
            else:
                lacking = lacking.drop(columns=columns.idxmax())
        keys = set(lacking.columns)
        return list(lacking.index), [column for column in self.columns if column.key in keys and len(lacking.index)]

    def of_column(self, column: str) -> list[Record]:
        """Return the cells of a column."""
        return [record for record in self.records if record.column == column]

    def base(self, entry: str, method: str) -> str:
        """Return the name of ``method`` on the entry's own backbone."""
        model = self.entries[entry].model
        return method if model == self.protocol.backbone else f"{method}-{model}"

    def status(self) -> str:
        """Return the number of complete, started, later and outdated cells as a sentence."""
        protocol, guests = self.protocol, {guest.name for guest in self.guests}
        pairs = [(entry, column) for entry in protocol.entries for column in protocol.columns]
        later = sum(protocol.later(*pair) for pair in pairs)
        own = [record for record in self.records if record.entry not in guests]
        done = sum(record.complete for record in own)
        begun = f", {len(own) - done} begun" if len(own) > done else ""
        other = f"; {len(self.others)} of another protocol are left out" if self.others else ""
        waiting = f"; {later} are too expensive without a GPU" if later else ""
        task = f"task={protocol.task}: " if protocol.caption else ""
        return f"{task}{done} of {len(pairs)} cells are complete{begun}{waiting}{other}."


def read_board(folder: Path, protocol: Protocol) -> Board:
    """Read the cells in a folder."""
    return Board(protocol, *current(read_records(folder), protocol))
