"""Inputs of the papers' figures: stored runs and federations."""

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
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers import analysis
from fgl_bench.papers.plan import Cell, Key, Paper, fill, plan
from fgl_bench.papers.published import Printed
from fgl_bench.results.cells import read_cells, warn
from fgl_bench.results.frame import complete_runs
from fgl_bench.results.plots.figures import Line, Panel, draw_ranks, tradeoffs
from fgl_bench.results.plots.style import TEXT
from fgl_bench.results.shapes import curve_flaw
from fgl_bench.results.thinned import curve, matrices, unpacked

Curve = Mapping[str, Sequence[float]]  # of thinned.curve
T = TypeVar("T")


@dataclass(frozen=True)
class Sources:
    """Sources of a paper's figures: its runs, or the curves and matrices in their stored cells.

    Attributes:
        datasets: requested datasets.
        results: folder with ``runs/`` and ``cells/``.
        data_dir: folder of raw datasets; None for the configured one.
        prepare: builds the federations of a configuration.
        extra: overrides of every run, as given when the runs were made.
    """

    paper: Paper
    datasets: tuple[str, ...]
    results: Path
    data_dir: str | None
    prepare: Callable[[DictConfig], Sequence[Federation]]
    extra: tuple[str, ...] = ()

    @cached_property
    def planned(self) -> list[Cell]:
        """The cells of all tables."""
        return plan(self.paper.tables, self.extra)

    @cached_property
    def stored(self) -> dict[Key, Mapping[str, Any]]:
        """The stored results of these cells."""
        return fill(self.planned, read_cells(self.results / "cells" / self.paper.name))

    @cached_property
    def _runs(self) -> dict[Key, Path]:
        """The existing run directories."""
        folder = self.results / "runs"
        complete = complete_runs(folder) if folder.is_dir() else []
        by_hash = {run.summary["config_hash"]: run.folder for run in complete}
        by_overrides = {run.overrides: run.folder for run in complete}
        hashes = {key: cell["config_hash"] for key, cell in self.stored.items()}
        folders = {cell.key: by_hash.get(hashes.get(cell.key, ""), by_overrides.get(cell.overrides)) for cell in self.planned}
        return {key: path for key, path in folders.items() if path is not None}

    def runs(self, *tables: str) -> dict[Key, Path]:
        """Return the complete run directories of these tables."""
        return {key: folder for key, folder in self._runs.items() if key[0] in tables}

    def cells(self, *tables: str) -> dict[Key, Any]:
        """Return the stored results of these tables."""
        return {key: cell for key, cell in self.stored.items() if key[0] in tables}

    def curves(self, *keys: str) -> dict[Key, Curve]:
        """Return ``thinned.curve`` of all stored results of these tables; empty for results without one."""
        stored = self._stored_pictures("curve", lambda run: curve(run / "history.csv", None), keys)
        return {key: content if is_curve(content) else {} for key, content in stored.items()}

    def matrices(self, kind: str, *keys: str) -> dict[Key, dict[int, np.ndarray]]:
        """Return the first seed's matrices ``[C, C]`` of a kind (``similarity``, ``mixing``) by trip count; empty if missing."""
        stored = self._stored_pictures("matrices", lambda run: matrices(run / "mixing.npz") if (run / "mixing.npz").is_file() else {}, keys)
        return {key: unpacked_all(content, kind) for key, content in stored.items()}

    def _stored_pictures(self, name: str, of_run: Callable[[Path], object], tables: Sequence[str]) -> dict[Key, object]:
        runs, cells = self.runs(*tables), self.cells(*tables)
        keys = [cell.key for cell in self.planned if cell.key in runs or cell.key in cells]
        return {key: self._readable(name, of_run, runs[key]) if key in runs else cells[key].get(name) for key in keys}

    @staticmethod
    def _readable(name: str, of_run: Callable[[Path], object], run: Path) -> object:
        try:
            return of_run(run)
        except Exception as error:  # a damaged file may raise anything
            warn(run, f"its {name} only: {type(error).__name__}: {error}")
            return None

    def federations(self, experiment: str, datasets: Sequence[str], *overrides: str) -> Iterator[tuple[str, Federation]]:
        """Yield the first seed's federation of every available dataset; others are named on stderr."""
        for dataset in datasets:
            composed = Composer()
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


def percent(score: float | None) -> float:
    """Convert to percent; a missing score is NaN, which is not drawn."""
    return float("nan") if score is None else 100 * score


def interval(score: Mapping[str, Any]) -> tuple[float, float]:
    """Return mean and half-width of the 95 % interval of a stored score, in percent."""
    return percent(score["mean"]), 100 * (score["ci95"] or 0)


def line(curve: Curve, x: str, y: str, units: tuple[float, float] = (1.0, 1.0)) -> Line | None:
    """Return the curve's values ``y`` against ``x``, scaled by ``units``; None if either is missing."""
    if x not in curve or y not in curve:
        return None
    along, mean, half = (np.array(curve.get(name, np.zeros(len(curve[x]))), dtype=float) for name in (x, y, f"{y}_half"))
    return along * units[0], mean * units[1], half * units[1]


def convergence(curves: Mapping[str, Mapping[str, Curve]], what: str = "test accuracy") -> list[Panel]:
    """Return panels of test scores against client trips: one per model and entry of ``curves``, which maps names to lines."""
    result = []
    for model in MODELS:
        for title, named in curves.items():
            drawn = {name: points for name, curve in named.items() if (points := line(curve, "trips", model, (1, 100))) is not None}
            if drawn:  # trained models may lack scores along the run
                result.append(Panel(f"{title}, {model} model", "client trips", f"{what} in %", drawn))
    return result


def swept(points: Sequence[tuple[int, Mapping[str, Any]]]) -> Line:
    """Return stored scores in percent at their positions 0, 1, ..., without missing runs."""
    return tuple(
        np.array(values, dtype=float) for values in zip(*((position, *interval(score)) for position, score in points), strict=True)
    )  # type: ignore[return-value]


def both(tests: Mapping[str, Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Return stored scores as bars of received and trained models, by name."""
    return {name: [interval(test[model]) for model in MODELS] for name, test in tests.items()}


def seconds(cell: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return seconds of training per round and seed as a bar."""
    return [(cell["seconds"]["train"] / (cell["config"]["rounds"] * len(cell["seeds"])), 0.0)]


def lines(name: str, places: Mapping[str, Key], found: Mapping[Key, T], least: int = 2) -> dict[str, T]:
    """Return the stored content of every line with a result.

    Empty if any result has no content, with a note on stderr: a figure without some of its methods would look complete. Also empty if
    fewer than ``least`` lines have a result.

    Args:
        name: name of the figure.
        places: key of each line's result.
    """
    available = {line: found[key] for line, key in places.items() if key in found}
    lacking = [line for line, content in available.items() if not content]
    if lacking:
        some = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} others" if len(lacking) > 3 else "")
        print(f"left out: {name}: nothing of it is stored with {some}; reproduce_tables.py --again repeats runs", file=sys.stderr)
        return {}
    return compared(name, {"": available}, least).get("", {})


def compared(name: str, panels: Mapping[str, Mapping[str, T]], least: int = 2) -> dict[str, dict[str, T]]:
    """Return the panels with at least ``least`` lines; prints a note on stderr if none is left."""
    filled = {panel: dict(named) for panel, named in panels.items() if len(named) >= least}
    alone = dict.fromkeys(line for named in panels.values() for line in named)
    if alone and not filled:
        print(f"left out: {name}: nothing to compare, there are results of {', '.join(map(str, alone))} only", file=sys.stderr)
    return filled


def is_curve(content: object) -> TypeGuard[Curve]:
    """Return True for a curve of ``thinned.curve``."""
    return curve_flaw(content) is None


def unpacked_all(content: Any, kind: str) -> dict[int, np.ndarray]:
    """Decode the matrices of a kind from ``thinned.matrices``, by trip count; empty if damaged."""
    try:
        return {int(trips): unpacked(matrix) for trips, matrix in content[kind].items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        return {}


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures of the paper for which results exist."""
    return importlib.import_module(f"fgl_bench.papers.figures.{sources.paper.name}_figures").draw(sources)


def statistics(paper: Paper, results: Path, published: Printed) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures of every table with enough cells in ``results/cells``, separately for received and trained models."""
    tables = [table for table in paper.tables if analysis.scorer(table.measure) is not None]
    stored = fill(plan(tables), read_cells(results / "cells" / paper.name))
    for table in tables:
        trips = table.measure == "trips"
        unit = "client trips to the target" if trips else "score in %"
        for model in MODELS:
            part = analysis.analyze(table, stored, published, model)
            title = f"{paper.title}, table {table.key}, {model} models"
            if part.ranks is not None:
                yield f"table{table.key}_ranks_{model}", draw_ranks([(part.ranks, f"{title}, {part.ranks.columns} columns")], TEXT)
            if any(len(points) > 1 for points in part.points.values()):
                yield f"table{table.key}_bytes_{model}", tradeoffs(part.points, title, unit, trips)
