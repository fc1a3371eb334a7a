"""The work for one paper: its chosen tables, the runs that they need, and the stored results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.analysis import analyze, overview_line, write_statistics
from fgl_bench.papers.draws import Draws
from fgl_bench.papers.findings import markdown, settle_all
from fgl_bench.papers.grids import look_up, named
from fgl_bench.papers.plan import Cell, Paper, Table
from fgl_bench.papers.published import Printed
from fgl_bench.papers.settlements import Settled, Settlement, alternatives
from fgl_bench.papers.tables import write_table
from fgl_bench.results.cells import compact, stored_of, write_cell
from fgl_bench.results.estimates import Costs, Kind
from fgl_bench.results.selection import scored_models
from fgl_bench.results.store import is_complete, read_summary
from fgl_bench.utils.files import write_whole


@dataclass
class Work:
    """One paper: its chosen tables, the cells they need, and stored results by configuration hash.

    Attributes:
        changed: overrides by which the runs differ from the paper's setting.
        results: holds runs/, cells/ and tables/.
        known: stored results of all papers, for estimates.
        rates, measured: seconds of earlier runs, and of short ones, for estimates too.
        settlements: what the paper's printed rows are compared with.
        draws: runs over many draws of the masks.
        choices: of rows and models for the paper's printed rows, see ``choices.read_choices``.
    """

    paper: Paper
    tables: list[Table]
    cells: list[Cell]
    published: Printed
    changed: list[str]
    results: Path
    stored: dict[str, dict] = field(default_factory=dict)
    known: dict[str, dict] = field(default_factory=dict)
    rates: Mapping[Kind, float] = field(default_factory=dict)
    measured: Mapping[Kind, float] = field(default_factory=dict)
    costs: Costs | None = None
    settlements: Sequence[Settlement] = ()
    draws: Draws = ()
    choices: Sequence[Mapping[str, str]] = ()

    @property
    def store(self) -> Path:
        return self.results / "cells" / self.paper.name

    def folder(self, cell: Cell) -> Path:
        """The cell's run directory."""
        return self.results / "runs" / cell.folder

    def downloaded(self, dataset: str, content: Mapping[str, str]) -> None:
        """Raw files that were absent when the runs were planned are there, and their sums are part of what the dataset's runs are."""
        self.cells = [cell.on(content) if cell.dataset == dataset else cell for cell in self.cells]

    def name(self, cell: Cell) -> str:
        return f"{self.paper.name}: {cell.name}"

    def cost(self, cell: Cell) -> float | None:
        """Seconds that a run will take, from what is stored of all papers; None where nothing was run."""
        self.costs = self.costs or Costs(self.paper, self.known.values(), self.rates, self.measured)
        return self.costs.of(cell)

    def alternatives(self) -> set[str]:
        """Hashes of the runs that fill nothing but alternative rows, in columns that no row is chosen on, or repeated prints.

        A table repeats a print that an earlier one shows in another setting.
        """
        rows, basis = {table.key: alternatives(table, self.settlements) for table in self.tables}, self.paper.basis
        tables, first = {table.key: table for table in self.tables}, dict[int, str]()
        beside, needed = set[str](), set[str]()
        for cell in self.cells:
            chosen_on = basis is not None and cell.table in basis.tables and cell.dataset in basis.datasets
            their = look_up(self.published, tables[cell.table], cell.row, cell.column)
            repeated = their is not None and first.setdefault(id(their), cell.table) != cell.table
            (beside if repeated or (cell.row.key in rows[cell.table] and not chosen_on) else needed).add(cell.digest)
        return beside - needed

    def printed(self) -> set[str]:
        """Hashes of the runs that fill a cell for which the paper has a number."""
        rows = {table.key: table for table in self.tables}
        return {cell.digest for cell in self.cells if look_up(self.published, rows[cell.table], cell.row, cell.column) is not None}

    def learn(self, stored: Mapping[str, dict]) -> None:
        """Use these results for estimates too, whichever paper they belong to."""
        self.known.update(stored)
        self.costs = None

    def read(self) -> None:
        """Look the cells up in the store, then collect what it lacks."""
        self.stored |= stored_of(self.cells, self.store)
        self.collect()

    def collect(self) -> dict[str, dict]:
        """Take complete run directories, whoever made them, into the store where it lacks them or has an earlier run; returns these."""
        new = {}
        for cell in self.cells:
            folder = self.folder(cell)
            if not cell.digest or not is_complete(folder) or (summary := read_summary(folder)) is None:
                continue
            stored = self.stored.get(cell.digest)
            if stored is None or stored["finished"] < summary["finished"]:
                new[cell.digest] = self.stored[cell.digest] = compact(summary, cell.command, folder)
                write_cell(self.store, new[cell.digest])
        return new

    def planned(self, table: Table) -> dict[tuple[str, str], Cell]:
        """The table's cells by (row key, column key)."""
        return {(cell.row.key, cell.column.key): cell for cell in self.cells if cell.table == table.key}

    def write(self, digest: str | None = None) -> list[Path]:
        """Write the chosen tables from what is stored, or those only that show the run ``digest``."""
        folder, paths = self.results / "tables" / self.paper.name, []
        for table in self.tables:
            planned = self.planned(table)
            if table.measure == "curves" or (digest and digest not in {cell.digest for cell in planned.values()}):
                continue
            paths += write_table(folder, self.paper, table, self.cells, self.stored, self.published, self.changed)
            path = write_statistics(folder, self.paper, table, planned, self.stored, self.published)
            paths += [path] if path else []
        if len(self.tables) == len(self.paper.tables) and not self.changed:
            paths.append(folder / "settlement.md")
            write_whole(paths[-1], markdown(self.paper, self.settled(), self.settlements, self.choices))
        return paths

    def settled(self) -> dict[str, list[Settled]]:
        """The findings on the printed cells, by table."""
        return settle_all(self.paper, self.tables, self.planned, self.stored, self.published, self.settlements, self.draws)

    def overview(self) -> list[str]:
        """How far the tables agree with the paper, a line each."""
        lines = []
        for table in sorted(self.tables, key=lambda each: (len(each.key), each.key)):
            if table.measure == "curves":
                continue
            planned = self.planned(table)
            models = scored_models(MODELS, (cell for _, cell in named(table, planned, self.stored)))
            by_model = [analyze(self.paper, table, planned, self.stored, self.published, model) for model in models]
            digests = {cell.digest or str(cell.overrides) for cell in planned.values()}
            run = f"{len(digests & set(self.stored))} of {len(digests)}"
            lines.append(overview_line(self.paper.title, table.key, run, by_model))
        return lines
