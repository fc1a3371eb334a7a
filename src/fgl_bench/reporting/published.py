"""The papers' own numbers, as printed."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Published:
    """One printed cell; accuracies in percent.

    Attributes:
        mean, spread: strings exactly as printed; ``spread`` may be empty.
        target: validation accuracy of a trip count, a fraction; None in other tables.
        reached: runs that a trip count averages, where that could be worked out.
    """

    mean: str
    spread: str
    target: float | None = None
    reached: int | None = None

    @property
    def text(self) -> str:
        """``81.7 ± 0.3``."""
        return f"{self.mean} ± {self.spread}" if self.spread else self.mean


def read_published(path: Path) -> dict[tuple[str, str, str], Published]:
    """Printed cells by (table, dataset, method) of a tidy csv; ablations, backbones other than the first and blank cells are left out.

    Raises:
        OSError: there is no such file.
    """
    cells: dict[tuple[str, str, str], Published] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["variant"] != "default" or not row["mean"]:
                continue
            target, reached = (re.search(rf"{name}=([\d.]+)", row["note"]) for name in ("target_accuracy", "runs_that_reached_target"))
            cell = Published(row["mean"], row["spread"], float(target[1]) if target else None, int(reached[1]) if reached else None)
            cells.setdefault((row["table"], row["dataset"], row["method"]), cell)
    return cells


def targets(cells: dict[tuple[str, str, str], Published], table: str) -> dict[str, float]:
    """The target of every dataset of a table of trip counts; empty for other tables."""
    return {dataset: cell.target for (number, dataset, _), cell in cells.items() if number == table and cell.target is not None}
