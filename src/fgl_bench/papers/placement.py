"""A user's method in a published table: its row next to ours and the published ones, its rank, tests against every baseline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from fgl_bench.config.choices import config_folder, suggest
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.analysis import CellScore, scorer
from fgl_bench.papers.plan import Column, Key, Paper, Row, Table, fill, load_paper, look_up, plan
from fgl_bench.papers.published import Printed, read_published
from fgl_bench.papers.tables import texts, write_texts
from fgl_bench.results import statistics
from fgl_bench.results.cells import compact, read_cells, warn
from fgl_bench.results.statistics import Ranks
from fgl_bench.results.store import Untrusted, checked
from fgl_bench.utils.files import write_whole

OWN = "yours"
FILE = "row.json"
UNSCORED = ("trips", "seconds", "costs", "curves")  # measures without placement


@dataclass
class Placement:
    """A table's columns, the stored results of its rows, and the user's runs.

    Attributes:
        title: title of the user's method.
        stored: results; :meth:`add` adds the user's runs.
    """

    paper: Paper
    table: Table
    title: str
    stored: dict[Key, Mapping[str, Any]]
    published: Printed
    commands: list[str] = field(default_factory=list)

    def overrides(self, column: Column) -> list[str]:
        """Return the setting of a column as command-line arguments."""
        fixed = (f"experiment={self.table.experiment}", f"dataset={column.dataset}")
        return [*fixed, *column.overrides]

    def add(self, column: Column, summary: Mapping[str, Any], command: str, folder: Path | None = None) -> None:
        """Add the user's run of a column, stored in ``folder``."""
        self.stored[self.table.key, OWN, column.key] = compact(summary, command, folder)
        self.commands.append(command)

    def scores(self, column: Column, model: str) -> dict[str, CellScore]:
        """Return scores by title for rows with a score for every seed, the user's method first."""
        scored, result = scorer(self.table.measure), {}
        assert scored is not None
        for row in self.table.rows:
            cell = self.stored.get((self.table.key, row.key, column.key))
            if cell is not None and (score := scored(cell, model, None)) is not None:
                result[row.title] = score
        return result

    def paired(self, column: Column, model: str) -> dict[str, list[float]]:
        """Return the scores of the user's seeds, for all rows that have these seeds."""
        own = self.stored[self.table.key, OWN, column.key]["seeds"]
        result = {}
        for row in self.table.rows:
            cell = self.stored.get((self.table.key, row.key, column.key))
            score = None if cell is None else self.scores(column, model).get(row.title)
            if cell is not None and score is not None and set(own) <= set(cell["seeds"]):
                by_seed = dict(zip(cell["seeds"], score.per_seed, strict=True))
                result[row.title] = [by_seed[seed] for seed in own]
        return result

    def ranks(self, model: str) -> tuple[Ranks | None, str]:
        """Return average ranks over the columns, or over the seeds of a single column, and a description of the average."""
        columns = self.table.columns
        if len(columns) == 1:
            scores = self.paired(columns[0], model)
            seeds = list(map(str, self.stored[self.table.key, OWN, columns[0].key]["seeds"]))
            return statistics.average_ranks(scores, seeds), f"the seeds of {columns[0].key}"
        each = [self.scores(column, model) for column in columns]
        names = [row.title for row in self.table.rows if all(row.title in scores for scores in each)]
        values = {name: [mean(scores[name].per_seed) for scores in each] for name in names}
        ranks = statistics.average_ranks(values, [column.dataset for column in columns])
        return ranks, f"{len(columns)} columns"


def placement(paper_name: str, key: str, datasets: Sequence[str], title: str, results: Path) -> Placement:
    """Load the setting and stored results of a published table.

    Args:
        datasets: datasets of the columns; empty for all.
        results: folder with ``cells/`` and ``published/``.

    Raises:
        UserError: the paper, table or dataset is unknown or has no stored results.
    """
    paper = load_paper(paper_name)
    scored = {table.key: table for table in paper.tables if table.measure not in UNSCORED}
    if key not in scored:
        raise UserError(f"table={key[:60]}: {paper.name} has no such table of scores{suggest(key, scored)}")
    known = scored[key].datasets
    wrong = next((name for name in datasets if name not in known), None)
    if wrong is not None:
        raise UserError(f"datasets={wrong[:60]}: not in table {key} of {paper.name}{suggest(wrong, known)}")
    columns = tuple(column for column in scored[key].columns if not datasets or column.dataset in datasets)
    if not (results / "cells" / paper.name).is_dir():
        raise UserError(f"results={results}: must be a folder with cells/{paper.name}/ and published/, such as results/ of a checkout")
    try:
        published = read_published(results / "published" / f"{paper.name}.csv")
    except OSError as error:
        raise UserError(f"results={results}: published/{paper.name}.csv cannot be read ({error.strerror})") from error
    table = replace(scored[key], columns=columns)
    stored = fill(plan([table]), read_cells(results / "cells" / paper.name))
    if not stored:
        raise UserError(f"results={results}: no run of table {key} of {paper.name} on {', '.join(datasets or known)} is stored there")
    return Placement(paper, replace(table, rows=(Row(OWN, title, OWN), *table.rows)), title, stored, published)


def stored_results(paper: str) -> Path:
    """Return ``results/``: in the package if installed from a wheel, in the root of a checkout.

    Raises:
        UserError: the folder does not exist.
    """
    folder = config_folder().parent / "results"
    if not (folder / "cells").is_dir():
        raise UserError(f"no stored results here: results= must name a folder with cells/{paper[:60]}/ and published/, as a checkout has")
    return folder


def leaderboard(placement: Placement, column: Column, model: str) -> Iterator[list[str]]:
    """Yield a line per scored row, best first: place, title, our score, published score, user's minus our score, p."""
    scores, pairs = placement.scores(column, model), placement.paired(column, model)
    tests = {}
    if placement.title in pairs and len(pairs[placement.title]) > 1:
        tests = {each.name: each for each in statistics.against(placement.title, pairs)}
    rows = {row.title: row for row in placement.table.rows}
    order = sorted(scores, key=lambda title: -scores[title].mean)
    for title in order:
        score, test, their = scores[title], tests.get(title), look_up(placement.published, placement.table, rows[title], column)
        rank = 1 + sum(other.mean > score.mean for other in scores.values())
        half = "" if score.half is None else f" ± {score.half:.1f}"
        named = f"> {title}" if title == placement.title else title
        against = [f"{test.difference:+.1f}", f"{test.adjusted:.3f}{'*' * test.worse}"] if test else ["", ""]
        yield [str(rank), named, f"{score.mean:.1f}{half}", their.text if their else "", *against]


def spoken(placement: Placement, column: Column, model: str) -> str:
    """Return a sentence with the rank among our and the published scores."""
    scores = placement.scores(column, model)
    if placement.title not in scores:
        return f"{placement.title} has no score: a seed has diverged."
    own = scores[placement.title].mean
    printed = {}  # several rows may belong to one published row
    for row in placement.table.rows:
        their = look_up(placement.published, placement.table, row, column)
        if their is not None:
            printed[str(their.where)] = float(their.mean)
    rank, would = (1 + sum(value > own for value in values) for values in ([score.mean for score in scores.values()], printed.values()))
    among = f"; it would be {would} of {len(printed) + 1} among the printed means" if printed else ""
    return f"{placement.title} is {rank} of {len(scores)}{among}."


def write(placement: Placement, folder: Path, changed: Sequence[str]) -> list[Path]:
    """Write the table with the user's row as ``table.md``, ``table.csv`` and ``table.tex``."""
    paper, table = placement.paper, placement.table
    title, label = f"{placement.title} in {paper.title}, table {table.key}: {table.title}", f"tab:{paper.name}-{table.key}-placed"
    contents = texts(paper, table, placement.stored, placement.published, changed, title, label, placement.commands)
    return write_texts(contents, folder / "table")


def diagrams(placement: Placement, folder: Path) -> list[Path]:
    """Draw the ranks of both kinds of models, if there are ranks.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from fgl_bench.results.plots.figures import draw_ranks
    from fgl_bench.results.plots.style import save_all, styled

    written = []
    for model in MODELS:
        ranks, description = placement.ranks(model)
        if ranks is not None:
            title = f"{placement.paper.title}, table {placement.table.key}, {model} models: average ranks over {description}"
            with styled():
                written += save_all(draw_ranks([(ranks, title)], 7.0), folder / f"ranks_{model}")
    return written


@dataclass(frozen=True)
class PlacedRow:
    """A user's method in a published table.

    Attributes:
        changed: overrides of its runs beyond the table's setting.
        cells: results by column key.
    """

    paper: str
    table: str
    title: str
    changed: Sequence[str]
    cells: Mapping[str, dict[str, Any]]


def write_row(placement: Placement, folder: Path, changed: Sequence[str]) -> Path:
    """Write ``<folder>/row.json``."""
    keys = {column.key: (placement.table.key, OWN, column.key) for column in placement.table.columns}
    cells = {name: placement.stored[key] for name, key in keys.items() if key in placement.stored}
    row = {"paper": placement.paper.name, "table": placement.table.key, "title": placement.title, "changed": list(changed), "cells": cells}
    write_whole(folder / FILE, json.dumps(row, indent=1, allow_nan=False) + "\n")
    return folder / FILE


def read_rows(folder: Path) -> list[PlacedRow]:
    """Read the rows below ``folder``; damaged rows and rows of other versions are left out with a warning on stderr."""
    rows = []
    for path in sorted(folder.glob(f"**/{FILE}")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
            cells = {str(key): checked(json.dumps(cell)) for key, cell in row["cells"].items()}
            absent = next((name for cell in cells.values() for name in ("algorithm", "command", "config") if name not in cell), None)
            if absent is not None:
                raise Untrusted(f"{absent} is missing in a cell")
            rows.append(PlacedRow(str(row["paper"]), str(row["table"]), str(row["title"]), [str(each) for each in row["changed"]], cells))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warn(path, f"{type(error).__name__}: {error}")
        except Untrusted as reason:
            warn(path, str(reason))
    return rows
