"""Published scores of the papers."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fgl_bench.errors import UserError

# Columns of the csv that identify a cell.
WHERE = ("table", "dataset", "split", "num_clients", "scenario", "backbone", "method", "variant", "metric")


@dataclass(frozen=True)
class Published:
    """One published cell; accuracies in percent.

    Attributes:
        mean, spread: strings exactly as printed; ``spread`` may be empty.
        target: validation accuracy of a trip count, a fraction; None in other tables.
        reached: number of runs behind a trip count, if it could be derived.
        where: its columns :data:`WHERE`.
        kind: kind of the spread, from the paper: ``ci95``, ``std``, ``var``, ``unstated``, ``none``.
    """

    mean: str
    spread: str
    target: float | None = None
    reached: int | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    kind: str = "unstated"

    @property
    def text(self) -> str:
        """``81.7 ± 0.3``."""
        return f"{self.mean} ± {self.spread}" if self.spread else self.mean


class Printed:
    """All published cells of a paper with a number."""

    def __init__(self, cells: Iterable[Published]):
        self.cells = tuple(cells)
        self._by_place: dict[tuple[str, str], list[Published]] = {}
        for cell in self.cells:
            self._by_place.setdefault((cell.where["table"], cell.where["dataset"]), []).append(cell)

    def find(self, where: Mapping[str, str]) -> Published | None:
        """Return the cell identified by ``where``, at least its table and dataset; None if it does not exist.

        Raises:
            ValueError: several cells match.
        """
        near = self._by_place.get((where["table"], where["dataset"]), [])
        matching = [cell for cell in near if all(cell.where[key] == value for key, value in where.items())]
        if len(matching) > 1:
            raise ValueError(f"{dict(where)} is printed {len(matching)} times")
        return matching[0] if matching else None

    def targets(self, table: str) -> dict[str, float]:
        """Return the target of every dataset of a table of trip counts; empty for other tables."""
        return {cell.where["dataset"]: cell.target for cell in self.cells if cell.where["table"] == table and cell.target is not None}


def read_published(path: Path) -> Printed:
    """Read the cells of a tidy csv, without blank ones.

    Raises:
        OSError: the file does not exist.
        UserError: a row is damaged or repeated.
    """
    cells: dict[tuple[str, ...], Published] = {}
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        for row in lines:
            where = {name: row[name] for name in WHERE}
            if not row["mean"]:
                continue
            try:
                numbers = [float(row[name]) for name in ("mean", "spread") if row[name]]
                found = re.search(r"target_accuracy=([\d.]+)", row["note"]), re.search(r"runs_that_reached_target=(\d+)", row["note"])
                target, reached = (match and convert(match[1]) for match, convert in zip(found, (float, int), strict=True))
            except ValueError as error:
                raise UserError(f"{path}, line {lines.line_num}: {error}") from error
            if not all(map(math.isfinite, numbers)) or tuple(where.values()) in cells:
                raise UserError(f"{path}, line {lines.line_num}: a number is not finite, or the cell is there already")
            cells[tuple(where.values())] = Published(row["mean"], row["spread"], target, reached, where, row["spread_kind"])
    return Printed(cells.values())
