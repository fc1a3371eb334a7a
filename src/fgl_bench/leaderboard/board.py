"""Cells of the leaderboard: scores, and the largest complete part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean

from fgl_bench.leaderboard.protocol import BoardColumn, Protocol
from fgl_bench.leaderboard.record import Record, Winner, current, read_records

LOCAL = "local"
REFERENCES = frozenset({"majority", "local", "global"})  # entries that are not federated methods


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
    guests: tuple[str, ...] = ()

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Record]:
        """Cells by entry and column key."""
        return {(record.entry, record.column.key): record for record in self.records}

    @property
    def entries(self) -> list[str]:
        """Entries that have a cell, guests first, then in the protocol's order."""
        known = [*self.guests, *(entry.name for entry in self.protocol.entries)]
        return [name for name in known if any(record.entry == name for record in self.records)]

    @property
    def columns(self) -> list[BoardColumn]:
        """Columns that have a cell, in the protocol's order."""
        present = {record.column for record in self.records}
        return [column for column in self.protocol.columns if column in present]

    def winner(self, entry: str, column: BoardColumn, model: str) -> Winner | None:
        record = self.cells.get((entry, column.key))
        return None if record is None else record.winners.get(model)

    def scores(self, column: BoardColumn, model: str) -> dict[str, list[float]]:
        """Return test scores by entry, in seed order, for entries with all scores: means over fewer seeds would favor failures."""
        result = {}
        for name in self.entries:
            winner = self.winner(name, column, model)
            if winner is not None and len(winner.scores) == len(self.protocol.test_seeds):
                known = [score for score in winner.scores if score is not None]
                if len(known) == len(winner.scores):
                    result[name] = known
        return result

    def means(self, model: str) -> dict[str, dict[str, float]]:
        """Return mean test scores by column key and entry."""
        return {column.key: {name: mean(scores) for name, scores in self.scores(column, model).items()} for column in self.columns}

    def whole(self, model: str) -> tuple[list[str], list[BoardColumn]]:
        """Return entries and columns with all scores, by repeatedly dropping the entry or column with the most missing ones.

        Ties drop the column. Guests are never dropped.
        """
        means = self.means(model)
        rows = [name for name in self.entries if any(name in scores for scores in means.values())]
        columns = [column for column in self.columns if means[column.key]]
        while rows and columns:
            lacking_rows = {name: mean(name not in means[column.key] for column in columns) for name in rows}
            lacking = {column: mean(name not in means[column.key] for name in rows) for column in columns}
            removable = [name for name in rows if name not in self.guests] or rows
            worst_row, worst = max(removable, key=lambda name: lacking_rows[name]), max(columns, key=lambda column: lacking[column])
            if max(lacking_rows[worst_row], lacking[worst]) == 0:
                break
            if lacking_rows[worst_row] > lacking[worst]:
                rows.remove(worst_row)
            else:
                columns.remove(worst)
        return rows, columns

    def status(self) -> str:
        """Return the number of complete, started and outdated cells as a sentence."""
        total = len(self.protocol.columns) * len(self.protocol.entries)
        own = [record for record in self.records if record.entry not in self.guests]
        done = sum(record.complete for record in own)
        begun = f", {len(own) - done} begun" if len(own) > done else ""
        other = f"; {len(self.others)} of another protocol are left out" if self.others else ""
        return f"{done} of {total} cells are complete{begun}{other}."


def read_board(folder: Path, protocol: Protocol) -> Board:
    """Read the cells in a folder."""
    return Board(protocol, *current(read_records(folder), protocol))
