"""A paper's cells as numbers, what is worked out from them for several papers, and a line of the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Finding:
    """A line of the page: what is looked at, what the paper prints, what its cells give, and what follows."""

    about: str
    printed: str
    recomputed: str
    follows: str


class Printed:
    """A paper's cells as numbers."""

    def __init__(self, folder: Path, paper: str):
        table = pd.read_csv(folder / f"{paper}.csv", dtype=str, keep_default_na=False)
        self.cells = table.assign(value=pd.to_numeric(table["mean"]), width=pd.to_numeric(table["spread"]))

    def where(self, **places: object) -> pd.DataFrame:
        """Cells at the given places; ``variant`` is the default one unless given."""
        cells = self.cells
        for key, value in {"variant": "default", **places}.items():
            cells = cells[cells[key].isin([str(v) for v in value])] if isinstance(value, (list, tuple)) else cells[cells[key] == str(value)]
        return cells

    def grid(self, columns: str | list[str] = "dataset", **places: object) -> pd.DataFrame:
        """Methods by columns; rows without any number are left out."""
        return self.where(**places).pivot(index="method", columns=columns, values="value").dropna(how="all")


def two(value: float) -> str:
    return f"{value:.2f}"


def best_cells(grid: pd.DataFrame, method: str) -> tuple[int, int]:
    """In how many columns the method is strictly above all others, and of how many."""
    others = grid.drop(method).max()
    return int((grid.loc[method] > others).sum()), grid.shape[1]


def gains(grid: pd.DataFrame, method: str) -> tuple[float, float]:
    """Mean gain over all other methods' cells, and over the best other of each column."""
    own, others = grid.loc[method].dropna(), grid.drop(method)
    others = others[own.index]
    return float(np.nanmean((own - others).to_numpy())), float((own - others.max()).mean())
