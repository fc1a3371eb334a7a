"""The papers' own numbers, as printed."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fgl_bench.results.cells import warn

# Columns of the csv that say which cell a number is.
WHERE = ("table", "dataset", "split", "num_clients", "scenario", "backbone", "method", "variant", "metric")


@dataclass(frozen=True)
class Published:
    """One printed cell; accuracies in percent.

    Attributes:
        mean, spread: strings exactly as printed; ``spread`` may be empty.
        target: validation accuracy of a trip count, a fraction; None in other tables.
        reached: runs that a trip count averages, where that could be worked out.
        where: its place, by the names of :data:`WHERE`.
        kind: what the paper says the spread is: ``ci95``, ``std``, ``var``, ``unstated``, ``none``.
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
    """All printed cells of a paper that hold a number."""

    def __init__(self, cells: Iterable[Published]):
        self.cells = tuple(cells)
        self._by_place: dict[tuple[str, str], list[Published]] = {}
        for cell in self.cells:
            self._by_place.setdefault((cell.where["table"], cell.where["dataset"]), []).append(cell)

    def find(self, where: Mapping[str, str]) -> Published | None:
        """The cell at the place ``where``, which names table and dataset at least; None if nothing is printed there.

        Raises:
            ValueError: several cells are there, so ``where`` says too little.
        """
        near = self._by_place.get((where["table"], where["dataset"]), [])
        found = [cell for cell in near if all(cell.where[key] == value for key, value in where.items())]
        if len(found) > 1:
            raise ValueError(f"{dict(where)} is printed {len(found)} times")
        return found[0] if found else None

    def targets(self, table: str) -> dict[str, float]:
        """The target of every dataset of a table of trip counts; empty for other tables."""
        return {cell.where["dataset"]: cell.target for cell in self.cells if cell.where["table"] == table and cell.target is not None}


def read_published(path: Path) -> Printed:
    """The cells of a tidy csv; blank ones are left out, and with a warning those that are damaged or printed twice.

    Raises:
        OSError: there is no such file.
    """
    cells: dict[tuple[str, ...], Published] = {}
    with path.open(encoding="utf-8", newline="", errors="replace") as file:
        lines = csv.DictReader(file)
        for row in lines:
            try:
                cell = published(row)
                if cell is None:
                    continue
                place = tuple(cell.where.values())
                if place in cells:
                    raise ValueError("its cell is there already")
                cells[place] = cell
            except ValueError as error:
                warn(f"{path}, line {lines.line_num},", str(error))
    return Printed(cells.values())


def published(row: Mapping[str, str | None]) -> Published | None:
    """The cell of one row; None for a blank one.

    Raises:
        ValueError: a column is missing, or holds no number where there must be one.
    """
    texts = {name: text for name, text in row.items() if text is not None}
    absent = [name for name in (*WHERE, "mean", "spread", "spread_kind", "note") if name not in texts]
    if absent:
        raise ValueError(f"it has no {absent[0]}")
    if not texts["mean"]:
        return None
    for name in ("mean", "spread"):
        if texts[name] and not _is_number(texts[name]):
            raise ValueError(f"{name} is {texts[name]!r}, not a number")
    target, reached = (re.search(rf"{name}=([\d.]+)", texts["note"]) for name in ("target_accuracy", "runs_that_reached_target"))
    numbers = (float(target[1]) if target else None, int(reached[1]) if reached else None)
    return Published(texts["mean"], texts["spread"], *numbers, {key: texts[key] for key in WHERE}, texts["spread_kind"])


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
