"""Matches published rows with our rows and models, by one rule on a few columns and seeds.

The candidates for a published row are our rows for it, each with its received and its trained model. Their gap is the absolute
difference between the published score and our mean over seeds 0 to 2, averaged over the columns of two datasets in the paper's main
tables. The smallest gap is chosen. Settings shared by all methods of a paper, such as the number of local epochs, are chosen once per
paper, by the mean of the smallest gaps. ``results/settlements/choices.csv`` records the choices and their columns, so that agreement on
the other columns can be counted separately.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.analysis import scorer
from fgl_bench.papers.plan import Basis, Row, Stored, Table, look_up
from fgl_bench.papers.published import Printed

SEEDS = 3
FILE = "choices.csv"
HEADS = ("paper", "printed", "where", "row", "model", "gap", "columns", "chosen")


@dataclass(frozen=True)
class Candidate:
    """A row and model of ours for a published row.

    Attributes:
        where: further keys that distinguish the published row from others of the same method.
        gaps: points between the published score and our mean over seeds 0 to 2, by "table, column".
        shared: value of the paper's shared key.
    """

    printed: str
    where: str
    row: str
    model: str
    gaps: Mapping[str, float]
    shared: object = None

    @property
    def method(self) -> tuple[str, str]:
        return self.printed, self.where

    def gap(self, columns: Iterable[str]) -> float:
        """Return the mean over the columns, rounded to 0.01 points; smaller differences do not count."""
        return round(fmean(self.gaps[column] for column in columns), 2)


@dataclass(frozen=True)
class Choice:
    """A candidate with the columns of its comparison."""

    candidate: Candidate
    columns: tuple[str, ...]
    chosen: bool

    @property
    def gap(self) -> float:
        return self.candidate.gap(self.columns)


def candidates(basis: Basis, tables: Sequence[Table], stored: Stored, published: Printed) -> list[Candidate]:
    """Return the candidates with a run in any column of the basis."""
    gaps: dict[tuple[Row, str], dict[str, float]] = {}
    shared: dict[Row, object] = {}
    for table in tables:
        if table.key not in basis.tables or (scored := scorer(table.measure)) is None:
            continue
        for column in (each for each in table.columns if each.dataset in basis.datasets):
            for row in table.rows:
                their, ours = look_up(published, table, row, column), stored.get((table.key, row.key, column.key))
                if their is None or ours is None or list(ours["seeds"][:SEEDS]) != list(range(SEEDS)):
                    continue
                shared[row] = ours["config"][basis.shared] if basis.shared else None
                for model in MODELS:
                    score = scored(ours, model, None)
                    if score is not None:
                        gap = abs(fmean(score.per_seed[:SEEDS]) - float(their.mean))
                        gaps.setdefault((row, model), {})[f"{table.key}, {column.key}"] = gap
    return [Candidate(str(row.published), _conditions(row), row.key, model, found, shared[row]) for (row, model), found in gaps.items()]


def _conditions(row: Row) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(row.where.items()))


def choose(found: Sequence[Candidate]) -> list[Choice]:
    """Return the choices of a paper, grouped by published row; ties go to the first."""
    values = list(dict.fromkeys(each.shared for each in found))
    if len(values) > 1:
        value = min(values, key=lambda value: _shared_gap(found, value, values))
        found = [each for each in found if each.shared == value]
    choices = []
    for method in dict.fromkeys(each.method for each in found):
        of_method = [each for each in found if each.method == method]
        columns = common_columns(of_method)
        compared = [each for each in of_method if set(columns) <= set(each.gaps)]
        best = min(compared, key=lambda each: each.gap(columns))
        choices += [Choice(each, columns, each is best) for each in compared]
    return choices


def common_columns(found: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the columns shared by all candidates with at least half as many columns as the most complete one."""
    most = max(len(each.gaps) for each in found)
    full = [each for each in found if 2 * len(each.gaps) >= most]
    common = [column for column in full[0].gaps if all(column in each.gaps for each in full)]
    return tuple(common or max(full, key=lambda each: len(each.gaps)).gaps)


def _shared_gap(found: Sequence[Candidate], value: object, values: Sequence[object]) -> float:
    """Return the mean smallest gap for a value of the shared key, over rows and columns run with all values."""
    least = []
    for method in dict.fromkeys(each.method for each in found):
        of_method = [each for each in found if each.method == method]
        if {each.shared for each in of_method} == set(values):
            columns = common_columns(of_method)
            least.append(min(each.gap(columns) for each in of_method if each.shared == value and set(columns) <= set(each.gaps)))
    return fmean(least) if least else 0.0


def table_of(choices: Mapping[str, Sequence[Choice]]) -> str:
    """Return the choices of all papers as csv; columns are separated by semicolons."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    for paper, chosen in choices.items():
        for each in chosen:
            own = each.candidate
            columns = "; ".join(each.columns)
            writer.writerow((paper, own.printed, own.where, own.row, own.model, f"{each.gap:.2f}", columns, int(each.chosen)))
    return text.getvalue()


def chosen_on(choices: Iterable[Mapping[str, str]], paper: str) -> frozenset[str]:
    """Return the columns used to choose rows of the paper, as "table, column"."""
    return frozenset(column for each in choices if each["paper"] == paper for column in each["columns"].split("; "))


def read_choices(path: Path) -> list[dict[str, str]]:
    """Read the rows of the file; empty if it does not exist."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
