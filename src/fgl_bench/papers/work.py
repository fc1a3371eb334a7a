"""The work for the papers: selected tables, their runs, stored results, and the queue and computing time of missing ones."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fgl_bench.config.choices import config_folder, content
from fgl_bench.papers.analysis import write_statistics
from fgl_bench.papers.plan import Cell, Key, Paper, Table, fill, in_order, look_up, plan, stale
from fgl_bench.papers.published import Printed
from fgl_bench.papers.tables import texts, write_texts
from fgl_bench.papers.verdicts import registered_cells
from fgl_bench.results import render
from fgl_bench.results.cells import compact, read_cells, write_cells
from fgl_bench.results.estimates import Costs, Kind, round_cost
from fgl_bench.results.frame import complete_runs
from fgl_bench.results.progress import Display
from fgl_bench.results.store import read_summary
from fgl_bench.runner.started import InTurn
from fgl_bench.utils.processes import quoted

DONE = ("written: ", "complete already")  # prefixes of output lines with the run's folder
LONGEST = 10


@dataclass
class Work:
    """One paper with its selected tables, their cells and stored results.

    Attributes:
        extra: overrides of every run beyond the paper's setting.
        results: folder with runs/, cells/ and tables/.
        registered: rows and models of ours that published rows are compared with, see :func:`fgl_bench.papers.verdicts.read_registered`.
        draws: runs over many draws of the masks.
        cells: the plan.
        known: all stored cells of the paper.
        stored: stored cells by planned cell.
        costs: run time estimates, shared by all papers.
    """

    paper: Paper
    tables: list[Table]
    published: Printed
    results: Path
    extra: Sequence[str] = ()
    registered: pd.DataFrame = field(default_factory=pd.DataFrame)
    draws: Mapping[Key, Mapping[str, Any]] = field(default_factory=dict)
    costs: Costs = field(default_factory=lambda: Costs(()))
    cells: list[Cell] = field(init=False)
    known: list[dict[str, Any]] = field(default_factory=list)
    stored: dict[Key, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cells = plan(self.tables, self.extra)

    @property
    def store(self) -> Path:
        return self.results / "cells" / self.paper.name

    def name(self, cell: Cell) -> str:
        return f"{self.paper.name}: {cell.name}"

    def missing(self) -> list[Cell]:
        """Return planned cells without a stored result."""
        return [cell for cell in self.cells if cell.key not in self.stored]

    def cost(self, cell: Cell) -> float | None:
        """Estimate the seconds of a run from the stored results of all papers; None without any."""
        setting = {**preset(cell.overrides[0].partition("=")[2], cell.dataset), **given(cell)}
        rounds = setting["rounds"] or setting["trips"] / setting["num_clients"]
        kind = Kind(cell.row.algorithm, str(setting.get("model", "gcn")), cell.dataset)
        return self.costs.seconds(kind, len(setting["seeds"]), rounds * round_cost(setting["local_epochs"]))

    def alternatives(self) -> set[tuple[str, ...]]:
        """Return the overrides of runs that only rows use which a published cell is not compared with."""
        named = registered_cells(self.paper.name, self.tables, self.registered)
        optional, needed, tables = set[tuple[str, ...]](), set[tuple[str, ...]](), {table for table, *_ in named}
        for cell in self.cells:
            other = cell.row.published is not None and cell.table in tables and cell.key not in named
            (optional if other else needed).add(cell.overrides)
        return optional - needed

    def printed(self) -> set[tuple[str, ...]]:
        """Return the overrides of runs in cells with a published score."""
        tables = {table.key: table for table in self.tables}
        return {cell.overrides for cell in self.cells if look_up(self.published, tables[cell.table], cell.row, cell.column) is not None}

    def read(self) -> None:
        """Read the stored cells, then add complete runs that they lack."""
        self.known = read_cells(self.store)
        self.stored = fill(self.cells, self.known)
        if not self.extra:
            stale(self.cells, self.known, self.store)
        self.costs.learn(self.known)
        lacking = {cell.overrides for cell in self.missing()}
        runs = complete_runs(self.results / "runs") if lacking and (self.results / "runs").is_dir() else []
        for run in runs:
            if run.overrides in lacking:
                self.add(run.folder, run.overrides)

    def add(self, folder: Path, overrides: tuple[str, ...]) -> bool:
        """Add a complete run to the stored cells; return False if ``folder`` has none.

        It fills the planned cells of its overrides and replaces a stored run of the same configuration.
        """
        summary = read_summary(folder)
        if summary is None:
            return False
        places = [(*cell.key, cell.overrides) for cell in self.cells if cell.overrides == overrides]
        same = [cell for cell in self.known if cell["config"] == summary["config"]]
        places += [position for cell in same for position in cell["places"] if position not in places]
        new = compact(summary, " ".join(("fgl-bench", *overrides)), folder, places)
        others = [
            {**cell, "places": [position for position in cell["places"] if position not in places]}
            for cell in self.known
            if cell not in same
        ]
        self.known = [*(cell for cell in others if cell["places"]), new]
        self.stored = fill(self.cells, self.known)
        self.costs.learn([new])
        write_cells(self.store, self.known)
        return True

    def write(self, overrides: tuple[str, ...] | None = None) -> list[Path]:
        """Write the selected tables from stored results, or only those with the run of these overrides."""
        folder, paths = self.results / "tables" / self.paper.name, []
        shown = {cell.table for cell in self.cells if overrides in (None, cell.overrides)}
        for table in self.tables:
            if table.measure == "curves" or table.key not in shown:
                continue
            paths += write_texts(texts(self.paper, table, self.stored, self.published, self.extra), folder / f"table{table.key}")
            path = write_statistics(folder, self.paper, table, self.stored, self.published)
            paths += [path] if path else []
        return paths


@cache
def preset(name: str, dataset: str) -> dict[str, Any]:
    """Return the scalar keys of an experiment and of its paper's dataset settings, with the one of rounds and trips that is set."""
    usual, own = yaml.safe_load((config_folder() / "config.yaml").read_text(encoding="utf-8")), content("experiment", name)
    of_dataset = f"{name.partition('/')[0]}/{dataset}"
    if (config_folder() / "by_dataset" / f"{of_dataset}.yaml").is_file():
        own |= content("by_dataset", of_dataset)
    budget = {"rounds": None, "trips": None} if {"rounds", "trips"} & own.keys() else {}
    return {**usual, **budget, **own}


def given(cell: Cell) -> dict[str, Any]:
    """Return the overrides of a cell by key, with the one of rounds and trips that is set."""
    overrides = {key: yaml.safe_load(value) for key, _, value in (text.partition("=") for text in cell.overrides)}
    return ({"rounds": None, "trips": None} if {"rounds", "trips"} & overrides.keys() else {}) | overrides


def outlook(works: Sequence[Work], absent: Collection[str]) -> list[str]:
    """Return Markdown with finished and missing runs and core hours per paper, then the most expensive missing rows.

    A run shown in several tables of a paper counts once, in the first. Alternative rows belong to a published row that is compared with
    another row.

    Args:
        absent: unavailable datasets, whose runs are left out.
    """
    cells = [
        (work, cell, work.cost(cell) or 0.0)
        for work in works
        for cell in in_order(work.paper, work.missing())
        if cell.dataset not in absent
    ]
    lines = ["| paper | runs made | hours | to make | about, hours | of them alternative rows |", "|---|--:|--:|--:|--:|--:|"]
    totals = [0.0] * 5
    for work in works:
        seconds = [cell["seconds"]["total"] for cell in {cell["config_hash"]: cell for cell in work.stored.values()}.values()]
        mine, later = [(cell, cost) for other, cell, cost in cells if other is work], work.alternatives()
        estimated, alternative = sum(cost for _, cost in mine), sum(cost for cell, cost in mine if cell.overrides in later)
        numbers = (len(seconds), sum(seconds) / 3600, len(mine), estimated / 3600, alternative / 3600)
        totals = [total + value for total, value in zip(totals, numbers, strict=True)]
        lines.append(_line(work.paper.title, numbers))
    lines += [_line("all", totals), "", "| paper | row | runs to make | about, hours |", "|---|---|--:|--:|"]
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    for work, cell, cost in cells:
        rows[work.paper.title, cell.row.title].append(cost)
    for (paper, row), costs in sorted(rows.items(), key=lambda each: -sum(each[1]))[:LONGEST]:
        lines.append(f"| {paper} | {row} | {len(costs)} | {sum(costs) / 3600:.1f} |")
    return lines


def _line(name: str, row: Sequence[float]) -> str:
    finished, spent, missing, estimated, alternative = row
    return f"| {name} | {finished:.0f} | {spent:.1f} | {missing:.0f} | {estimated:.1f} | {alternative:.1f} |"


@dataclass(kw_only=True)
class Runs(InTurn):
    """The missing runs, each with its paper.

    Attributes:
        where: presentation keys of every run; None values are left out.
        absent: datasets without raw files; a run on one may download it.
        look: recomputes ``absent``.
    """

    where: Mapping[str, Any]
    absent: Collection[str]
    look: Callable[[], Collection[str]]

    def name(self, work: tuple[Work, Cell]) -> str:
        return work[0].name(work[1])

    def cost(self, work: tuple[Work, Cell]) -> float | None:
        return work[0].cost(work[1])

    def line(self, work: tuple[Work, Cell]) -> list[str]:
        given = [f"{key}={quoted(value)}" for key, value in self.where.items() if value is not None]
        return [sys.executable, "-m", "fgl_bench.cli.main", *work[1].overrides, "progress=false", *given]

    def startable(self) -> Iterator[tuple[Work, Cell]]:
        """Yield runs that can start. On an absent dataset one run at a time, until the dataset is available or its download failed."""
        for pair in list(self.waiting):
            if len(self.running) >= self.jobs:
                return
            dataset = pair[1].dataset
            if dataset in self.absent and any(cell.dataset == dataset for (_, cell), _ in self.running):
                continue
            self.waiting.remove(pair)
            yield pair

    def ended(self, work: tuple[Work, Cell], status: int, lines: list[str], display: Display) -> str | None:
        """Store the result of a run."""
        paper, cell = work
        if cell.dataset in self.absent:
            self.left_out(cell.dataset, display)
        folder = next((Path(line.partition(": ")[2]) for line in reversed(lines) if line.startswith(DONE)), None)
        if status != 0 or folder is None or not paper.add(folder, cell.overrides):
            return None
        paper.write(cell.overrides)
        test = paper.stored[cell.key]["test"]
        return ": " + ", ".join(f"{model} {render.percent(scores['mean'])}" for model, scores in test.items())

    def left_out(self, dataset: str, display: Display) -> None:
        """Drop the other runs on a dataset that is still absent after a run on it."""
        self.absent = self.look()
        lost = [pair for pair in self.waiting if pair[1].dataset == dataset and dataset in self.absent]
        for pair in lost:
            self.waiting.remove(pair)
        if lost:
            display.say(f"left out: {len(lost)} more run(s) that need dataset={dataset}")
