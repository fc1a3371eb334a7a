"""Which row and model of ours stands for a printed row, chosen by one rule on a few columns and seeds.

For every printed row the candidates are our rows for it, each with its received and its trained model. Their gap is the absolute
difference between the print and our mean over seeds 0 to 2, averaged over the columns of two data sets in the paper's main tables; the
least gap is chosen. What all methods of a paper share, such as the number of local epochs, is chosen once for the paper: by the mean of
its printed rows' least gaps. ``results/settlements/choices.csv`` keeps what was chosen from which columns, so that agreement on all
other columns can be counted apart.
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
    """A row and model of ours for a printed row.

    Attributes:
        where: what else tells the printed row from others of the same method.
        gaps: points between the print and the mean of seeds 0 to 2, by "table, column".
        shared: its value of the paper's shared key.
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
        """Mean over the columns, to a hundredth of a point: what is nearer by less is not nearer."""
        return round(fmean(self.gaps[column] for column in columns), 2)


@dataclass(frozen=True)
class Choice:
    """A candidate with what it was compared on."""

    candidate: Candidate
    columns: tuple[str, ...]
    chosen: bool

    @property
    def gap(self) -> float:
        return self.candidate.gap(self.columns)


def candidates(basis: Basis, tables: Sequence[Table], stored: Stored, published: Printed) -> list[Candidate]:
    """Those that any column of the basis has a run of."""
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
    return [Candidate(str(row.published), _place(row), row.key, model, found, shared[row]) for (row, model), found in gaps.items()]


def _place(row: Row) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(row.where.items()))


def choose(found: Sequence[Candidate]) -> list[Choice]:
    """The choices of a paper, those of one printed row side by side; of equals the first is chosen."""
    values = list(dict.fromkeys(each.shared for each in found))
    if len(values) > 1:
        value = min(values, key=lambda value: _shared_gap(found, value, values))
        found = [each for each in found if each.shared == value]
    made = []
    for method in dict.fromkeys(each.method for each in found):
        of_method = [each for each in found if each.method == method]
        columns = common_columns(of_method)
        compared = [each for each in of_method if set(columns) <= set(each.gaps)]
        best = min(compared, key=lambda each: each.gap(columns))
        made += [Choice(each, columns, each is best) for each in compared]
    return made


def common_columns(found: Sequence[Candidate]) -> tuple[str, ...]:
    """The columns that all of ``found`` were run on, candidates left out that lack more than half of what the fullest has."""
    most = max(len(each.gaps) for each in found)
    full = [each for each in found if 2 * len(each.gaps) >= most]
    common = [column for column in full[0].gaps if all(column in each.gaps for each in full)]
    return tuple(common or max(full, key=lambda each: len(each.gaps)).gaps)


def _shared_gap(found: Sequence[Candidate], value: object, values: Sequence[object]) -> float:
    """Mean of the printed rows' least gaps where the shared key has this value, over rows and columns that were run with all values."""
    least = []
    for method in dict.fromkeys(each.method for each in found):
        of_method = [each for each in found if each.method == method]
        if {each.shared for each in of_method} == set(values):
            columns = common_columns(of_method)
            least.append(min(each.gap(columns) for each in of_method if each.shared == value and set(columns) <= set(each.gaps)))
    return fmean(least) if least else 0.0


def table_of(choices: Mapping[str, Sequence[Choice]]) -> str:
    """The choices of all papers as csv, columns of data sets separated by semicolons."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    for paper, made in choices.items():
        for each in made:
            own = each.candidate
            columns = "; ".join(each.columns)
            writer.writerow((paper, own.printed, own.where, own.row, own.model, f"{each.gap:.2f}", columns, int(each.chosen)))
    return text.getvalue()


def chosen_on(choices: Iterable[Mapping[str, str]], paper: str) -> frozenset[str]:
    """The columns that rows of the paper were chosen on, as "table, column"."""
    return frozenset(column for each in choices if each["paper"] == paper for column in each["columns"].split("; "))


def read_choices(path: Path) -> list[dict[str, str]]:
    """The rows of the file, as written; none where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
