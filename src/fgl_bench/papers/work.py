"""The work for one paper: its selected tables, their runs, and stored results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.config.choices import config_folder, content
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.agreement import markdown, settle_all
from fgl_bench.papers.analysis import analyze, overview_line, write_statistics
from fgl_bench.papers.plan import Cell, Key, Paper, Table, fill, in_table, look_up, plan, stale
from fgl_bench.papers.published import Printed
from fgl_bench.papers.settlements import Settled, Settlement, alternatives
from fgl_bench.papers.tables import texts, write_texts
from fgl_bench.results.cells import compact, read_cells, write_cells
from fgl_bench.results.estimates import Costs, Kind, round_cost
from fgl_bench.results.frame import complete_runs
from fgl_bench.results.scored import scored_models
from fgl_bench.results.store import read_summary
from fgl_bench.utils.files import write_whole


@dataclass
class Work:
    """One paper with its selected tables, their cells and stored results.

    Attributes:
        extra: overrides of every run beyond the paper's setting.
        results: folder with runs/, cells/ and tables/.
        settlements: rows of ours that published rows are compared with.
        draws: runs over many draws of the masks.
        choices: chosen rows and models, see :func:`fgl_bench.papers.matched_rows.read_choices`.
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
    settlements: Sequence[Settlement] = ()
    draws: Mapping[Key, Mapping[str, Any]] = field(default_factory=dict)
    choices: Sequence[Mapping[str, str]] = ()
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
        """Return the overrides of runs used only by alternative rows outside the columns for choosing, or by repeated published cells.

        A published cell is repeated if an earlier table has it in another setting.
        """
        rows, basis = {table.key: alternatives(table, self.settlements) for table in self.tables}, self.paper.basis
        tables, first = {table.key: table for table in self.tables}, dict[int, str]()
        optional, needed = set[tuple[str, ...]](), set[tuple[str, ...]]()
        for cell in self.cells:
            chosen_on = basis is not None and cell.table in basis.tables and cell.dataset in basis.datasets
            their = look_up(self.published, tables[cell.table], cell.row, cell.column)
            repeated = their is not None and first.setdefault(id(their), cell.table) != cell.table
            (optional if repeated or (cell.row.key in rows[cell.table] and not chosen_on) else needed).add(cell.overrides)
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
        if len(self.tables) == len(self.paper.tables) and not self.extra:
            paths.append(folder / "settlement.md")
            write_whole(paths[-1], markdown(self.paper, self.settled(), self.settlements, self.choices))
        return paths

    def settled(self) -> dict[str, list[Settled]]:
        """Return the findings on published cells, by table."""
        return settle_all(self.paper, self.tables, self.stored, self.published, self.settlements, self.draws)

    def overview(self) -> list[str]:
        """Return one line per table on the agreement with the paper."""
        lines = []
        for table in sorted(self.tables, key=lambda each: (len(each.key), each.key)):
            if table.measure == "curves":
                continue
            models = scored_models(MODELS, (cell for _, cell in in_table(table, self.stored)))
            by_model = [analyze(self.paper, table, self.stored, self.published, model) for model in models]
            wanted = {cell.overrides: cell.key in self.stored for cell in self.cells if cell.table == table.key}
            lines.append(overview_line(self.paper.title, table.key, f"{sum(wanted.values())} of {len(wanted)}", by_model))
        return lines


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
