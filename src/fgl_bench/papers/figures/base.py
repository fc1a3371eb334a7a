"""What the figures of every paper are drawn from: the runs that are there, and the data."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, cast

import numpy as np
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from fgl_bench.config.compose import Composer
from fgl_bench.data.graph import Federation
from fgl_bench.errors import UserError
from fgl_bench.papers.figures.figures import Curve
from fgl_bench.papers.plan import Cell, Paper, plan
from fgl_bench.results.cells import find, read_cells, warn
from fgl_bench.results.pictures import curve, matrices, unpacked
from fgl_bench.results.shapes import curve_flaw
from fgl_bench.results.store import is_complete, read_summary

Place = tuple[str, str, str]  # table, row, column
T = TypeVar("T")


@dataclass(frozen=True)
class Sources:
    """Where a drawing finds what it shows: in the runs, and where those are gone in the little that their cells kept.

    Attributes:
        datasets: those that were asked for.
        results: holds ``runs/`` and ``cells/``.
        data_dir: raw data sets; None leaves it to the configuration.
        prepare: makes the federations of a configuration.
        extra: overrides of every run, as they were given when the runs were made.
    """

    paper: Paper
    datasets: tuple[str, ...]
    results: Path
    data_dir: str | None
    prepare: Callable[[DictConfig], Sequence[Federation]]
    extra: tuple[str, ...] = ()

    @cached_property
    def _planned(self) -> dict[str, list[Cell]]:
        return {}

    def planned(self, keys: Sequence[str]) -> list[Cell]:
        """The cells of these tables."""
        for table in self.paper.tables:
            if table.key in keys and table.key not in self._planned:
                self._planned[table.key] = [cell for cell in plan(self.paper, [table], self.extra) if cell.digest]
        return [cell for key in dict.fromkeys(keys) for cell in self._planned.get(key, ())]

    def runs(self, *keys: str) -> dict[Place, Path]:
        """The complete run directories of these tables by (table, row, column)."""
        found = {(c.table, c.row.key, c.column.key): self.run_of(c) for c in self.planned(keys)}
        return {key: folder for key, folder in found.items() if folder is not None}

    def run_of(self, cell: Cell) -> Path | None:
        """Where the cell was run: in its own folder, or beside it by a configuration that only lacks keys added since."""
        folder = self.results / "runs" / cell.folder
        if is_complete(folder):
            return folder
        beside = ((other.name, read_summary(other)) for other in sorted(folder.parent.glob("*")) if is_complete(other))
        stored = find({name: summary for name, summary in beside if summary is not None}, cell.digest, cell.config)
        return None if stored is None else folder.parent / stored["config_hash"]

    def cells(self, *keys: str) -> dict[Place, dict]:
        """The stored results of these tables by (table, row, column)."""
        stored = read_cells(self.results / "cells" / self.paper.name)
        found = {(c.table, c.row.key, c.column.key): find(stored, c.digest, c.config) for c in self.planned(keys)}
        return {key: cell for key, cell in found.items() if cell is not None}

    def curves(self, *keys: str) -> dict[Place, Curve]:
        """``pictures.curve`` of all that is stored of these tables; empty for what kept none."""
        found = self._kept("curve", lambda run: curve(run / "history.csv", None), keys)
        return {place: kept if is_curve(kept) else {} for place, kept in found.items()}

    def matrices(self, kind: str, *keys: str) -> dict[Place, dict[int, np.ndarray]]:
        """The first seed's matrices ``[C, C]`` of a kind (``similarity``, ``mixing``) by trip count; empty for what kept none."""
        found = self._kept("matrices", lambda run: matrices(run / "mixing.npz") if (run / "mixing.npz").is_file() else {}, keys)
        return {place: unpacked_all(kept, kind) for place, kept in found.items()}

    def _kept(self, name: str, of_run: Callable[[Path], object], keys: Sequence[str]) -> dict[Place, object]:
        cells, found = self.cells(*keys), {}
        for cell in self.planned(keys):
            place, run = (cell.table, cell.row.key, cell.column.key), self.run_of(cell)
            if run is not None or place in cells:
                found[place] = cells[place].get(name) if run is None else self._readable(name, of_run, run)
        return found

    @staticmethod
    def _readable(name: str, of_run: Callable[[Path], object], run: Path) -> object:
        try:
            return of_run(run)
        except Exception as error:  # a damaged file may raise anything
            warn(run, f"its {name} only: {type(error).__name__}: {error}")
            return None

    def federations(self, experiment: str, datasets: Sequence[str], *overrides: str) -> Iterator[tuple[str, Federation]]:
        """The first seed's federation of every dataset that is at hand; the others are named on the way."""
        for dataset in datasets:
            with Composer() as composed:
                choices = (f"experiment={experiment}", f"dataset={dataset}")
                cfg = composed([*choices, *overrides, *self.extra, "seeds=[0]"])
            if self.data_dir:
                cfg = cast(DictConfig, OmegaConf.merge(cfg, {"data_dir": self.data_dir}))
            cfg.cache_dir = str(Path(cfg.cache_dir).expanduser())
            try:
                [federation] = self.prepare(cfg)
            except UserError as error:
                print(f"left out: {dataset}: {error}", file=sys.stderr)
                continue
            yield dataset, federation


def lines(name: str, places: Mapping[str, Place], found: Mapping[Place, T], least: int = 2) -> dict[str, T]:
    """By line what was kept of the results that are there.

    None where one of them kept nothing, with a word on stderr: a figure without some of its methods would look like all there is.
    None either where fewer than ``least`` lines have a result.

    Args:
        name: the figure's.
        places: where each line's result is looked for.
    """
    here = {line: found[place] for line, place in places.items() if place in found}
    lacking = [line for line, kept in here.items() if not kept]
    if lacking:
        some = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} others" if len(lacking) > 3 else "")
        print(f"left out: {name}: nothing of it is stored with {some}; reproduce_tables.py --again repeats runs", file=sys.stderr)
        return {}
    return compared(name, {"": here}, least).get("", {})


def compared(name: str, panels: Mapping[str, Mapping[str, T]], least: int = 2) -> dict[str, dict[str, T]]:
    """The panels in which there is something to compare: at least so many lines; one word on stderr if no panel is left."""
    kept = {panel: dict(found) for panel, found in panels.items() if len(found) >= least}
    alone = dict.fromkeys(line for found in panels.values() for line in found)
    if alone and not kept:
        print(f"left out: {name}: nothing to compare, there are results of {', '.join(map(str, alone))} only", file=sys.stderr)
    return kept


def is_curve(kept: object) -> TypeGuard[Curve]:
    """Whether this is what ``pictures.curve`` makes."""
    return curve_flaw(kept) is None


def unpacked_all(kept: Any, kind: str) -> dict[int, np.ndarray]:
    """What ``pictures.matrices`` kept of a kind, by trip count; nothing where it is damaged."""
    try:
        return {int(trips): unpacked(matrix) for trips, matrix in kept[kind].items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        return {}


def drawings() -> list[str]:
    """The papers that have figures."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py") if path.stem != "base")


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    """Names and figures of the paper, those that there is something to show in."""
    return importlib.import_module(f"fgl_bench.papers.figures.{sources.paper.name}").draw(sources)
