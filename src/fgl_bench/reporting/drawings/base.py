"""What the figures of every paper are drawn from: the runs that are there, and the data."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from omegaconf import OmegaConf

from fgl_bench.data.graph import Federation
from fgl_bench.errors import UserError
from fgl_bench.reporting.cells import find, read_cells
from fgl_bench.reporting.plan import Cell, Composer, Paper, plan
from fgl_bench.reporting.store import is_complete, read_summary


@dataclass(frozen=True)
class Sources:
    """Where a drawing finds what it shows.

    Attributes:
        datasets: those that were asked for.
        results: holds ``runs/`` and ``cells/``.
        data_dir: raw data sets; None leaves it to the configuration.
        extra: overrides of every run, as they were given when the runs were made.
    """

    paper: Paper
    datasets: tuple[str, ...]
    results: Path
    data_dir: str | None
    extra: tuple[str, ...] = ()

    def planned(self, keys: Iterable[str]) -> list[Cell]:
        """The cells of these tables."""
        keys = tuple(keys)
        return [cell for cell in plan(self.paper, [t for t in self.paper.tables if t.key in keys], self.extra) if cell.digest]

    def runs(self, *keys: str) -> dict[tuple[str, str, str], Path]:
        """The complete run directories of these tables by (table, row, column)."""
        found = {(c.table, c.row.key, c.column.key): self.run_of(c) for c in self.planned(keys)}
        return {key: folder for key, folder in found.items() if folder is not None}

    def run_of(self, cell: Cell) -> Path | None:
        """Where the cell was run: in its own folder, or beside it by a configuration that only lacks keys added since."""
        folder = self.results / "runs" / cell.folder
        if is_complete(folder):
            return folder
        beside = (other for other in sorted(folder.parent.glob("*")) if is_complete(other))
        stored = find({other.name: read_summary(other) for other in beside}, cell.digest, cell.config)
        return None if stored is None else folder.parent / stored["config_hash"]

    def cells(self, *keys: str) -> dict[tuple[str, str, str], dict]:
        """The stored results of these tables by (table, row, column)."""
        stored = read_cells(self.results / "cells" / self.paper.name)
        found = {(c.table, c.row.key, c.column.key): find(stored, c.digest, c.config) for c in self.planned(keys)}
        return {key: cell for key, cell in found.items() if cell is not None}

    def federations(self, experiment: str, datasets: Sequence[str], *overrides: str) -> Iterator[tuple[str, Federation]]:
        """The first seed's federation of every dataset that is at hand; the others are named on the way."""
        from fgl_bench.run import prepare

        for dataset in datasets:
            with Composer() as composed:
                choices = (f"experiment={experiment}", f"dataset={dataset}", *self.paper.dataset_overrides.get(dataset, ()))
                cfg = composed([*choices, *overrides, *self.extra, "seeds=[0]"])
            if self.data_dir:
                cfg = OmegaConf.merge(cfg, {"data_dir": self.data_dir})
            cfg.cache_dir = str(Path(cfg.cache_dir).expanduser())
            try:
                [federation] = prepare(cfg)
            except UserError as error:
                print(f"left out: {dataset}: {error}", file=sys.stderr)
                continue
            yield dataset, federation


def drawings() -> list[str]:
    """The papers that have figures."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py") if path.stem != "base")


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    """Names and figures of the paper, those that there is something to show in."""
    return importlib.import_module(f"fgl_bench.reporting.drawings.{sources.paper.name}").draw(sources)
