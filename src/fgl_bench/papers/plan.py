"""The plan of a paper's tables: which runs fill which cells, by which commands, in what order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.errors import UserError
from fgl_bench.papers.published import Printed, Published
from fgl_bench.utils.patience import say_once

PLANS = Path(__file__).parent / "plans"
Key = tuple[str, str, str]
"""A cell of a table: the table's key, the row's and the column's."""
Stored = Mapping[Key, Mapping[str, Any]]
"""Stored results by the cell that they fill."""


@dataclass(frozen=True)
class Row:
    """A method as a row of a table.

    Attributes:
        key: its name in commands; unique within the paper.
        algorithm: choice of the group ``algorithm``.
        overrides: further keys, which make a variant of it.
        published: the method's name in the paper's csv; None if the paper has no such row.
        where: what else tells its printed cells from others, by the csv's columns (``backbone``, ``variant``, ...).
        settings: overrides besides that depend on the column: the first entry counts whose other keys are the column's.
        experiment: the preset, where it is not the table's: the run is one of another table.
    """

    key: str
    title: str
    algorithm: str
    overrides: tuple[str, ...] = ()
    published: str | None = None
    where: Mapping[str, str] = field(default_factory=dict, compare=False)
    settings: Sequence[Mapping[str, Any]] = field(default=(), compare=False, repr=False)
    experiment: str = ""


@dataclass(frozen=True)
class Column:
    """A setting that every row of a table is run in.

    Attributes:
        dataset: choice of the group ``dataset``.
        group: heading of the part of the table that it stands in ("10 clients"); every part has means of its own.
        overrides: further keys (``num_clients=10``).
        where: what tells its printed cells from others, by the csv's columns (``num_clients``, ``split``, ...).
    """

    dataset: str
    group: str = ""
    overrides: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """Unique within the table."""
        return f"{self.dataset}, {self.group}" if self.group else self.dataset


def columns(datasets: Iterable[str], group: str = "", overrides: tuple[str, ...] = (), **where: str) -> tuple[Column, ...]:
    """One column for each dataset."""
    return tuple(Column(dataset, group, overrides, where) for dataset in datasets)


@dataclass(frozen=True)
class Table:
    """One table (or figure) of a paper.

    Attributes:
        key: the paper's number, or the figure's name; ``2_f1`` for what the paper's table 2 shows besides.
        experiment: the preset.
        measure: ``accuracy`` (or one of ``measures.SELECTED``), ``trips`` (to the printed target), ``seconds`` (a round),
            ``costs`` (at equal accuracy), another metric of the summaries, or ``curves``, whose runs are made but fill no table.
        where: what tells its printed cells from others; ``table`` is the key unless it says otherwise.
        with_bytes: show what a client sends in a round.
        compared: keys of the rows that set the level at which costs are compared.
    """

    key: str
    experiment: str
    title: str
    measure: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    where: Mapping[str, str] = field(default_factory=dict, compare=False)
    with_bytes: bool = False
    compared: tuple[str, ...] = ()

    @property
    def datasets(self) -> tuple[str, ...]:
        """Each once, in the order of the columns."""
        return tuple(dict.fromkeys(column.dataset for column in self.columns))

    def place(self, row: Row, column: Column) -> dict[str, str] | None:
        """Where the paper prints this cell; None if it has no such row."""
        if row.published is None:
            return None
        fixed = {"table": self.key, "dataset": column.dataset, "method": row.published, "variant": "default"}
        return {**fixed, **self.where, **column.where, **row.where}


@dataclass(frozen=True)
class Basis:
    """What the rows that a paper's printed rows are compared with are chosen on, see ``results.choices``.

    Attributes:
        tables, datasets: the columns.
        shared: a configuration key that all printed rows have one value of; empty for none.
    """

    tables: tuple[str, ...]
    datasets: tuple[str, ...] = ("cora", "pubmed")
    shared: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper's tables.

    Attributes:
        tables: in the order in which their runs are made.
        first: keys of the most telling rows, which are run first.
        late: datasets that are run after all others.
        basis: what its rows are chosen on; None where nothing is chosen.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    first: tuple[str, ...]
    late: tuple[str, ...] = ()
    basis: Basis | None = None


@dataclass(frozen=True)
class Cell:
    """A cell of a table as planned.

    Attributes:
        overrides: of the command that makes its run, without presentation keys.
    """

    table: str
    row: Row
    column: Column
    overrides: tuple[str, ...]

    @property
    def key(self) -> Key:
        return self.table, self.row.key, self.column.key

    @property
    def dataset(self) -> str:
        return self.column.dataset

    @property
    def name(self) -> str:
        return f"{'table ' * self.table[0].isdigit()}{self.table}, {self.column.key}, {self.row.key}"

    @property
    def command(self) -> str:
        """The command that makes this run alone."""
        return " ".join(("fgl-bench", *self.overrides))


def papers() -> list[str]:
    """Names of the papers whose tables can be reproduced."""
    return sorted(path.stem for path in PLANS.glob("*.yaml"))


@cache
def load_paper(name: str) -> Paper:
    """The paper called ``name``, from ``plans/<name>.yaml``.

    Raises:
        UserError: there is none.
    """
    if name not in papers():
        raise UserError(f"PAPER={name}: no tables of that paper here; allowed: {', '.join(papers())}")
    content = yaml.load((PLANS / f"{name}.yaml").read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    settings = content.get("settings", {})
    rows = {
        key: Row(**frozen({"key": key, **entry, **({"settings": settings[entry["settings"]]} if "settings" in entry else {})}))
        for key, entry in content["rows"].items()
    }
    tables = tuple(table_of(key, entry, rows) for key, entry in content["tables"].items())
    basis = Basis(**frozen(content["basis"])) if "basis" in content else None
    return Paper(name, content["title"], tables, tuple(content["first"]), tuple(content.get("late", ())), basis)


def table_of(key: str, entry: Mapping[str, Any], rows: Mapping[str, Row]) -> Table:
    """A table from its entry in the file, where columns of one setting stand together and rows are named."""
    found = [Column(dataset, **frozen(keys)) for keys in entry["columns"] for dataset in keys.pop("datasets")]
    return Table(key, **frozen({**entry, "columns": found, "rows": [rows[name] for name in entry["rows"]]}))


def frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with tuples for lists."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def overrides_of(row: Row, column: Column) -> tuple[str, ...]:
    """The row's settings for a column."""
    about = {"dataset": column.dataset, **column.where}
    fitting = (entry for entry in row.settings if all(about.get(key) == value for key, value in entry.items() if key != "overrides"))
    return tuple(next(fitting, {"overrides": ()})["overrides"])


def plan(tables: Iterable[Table], extra: Sequence[str] = ()) -> list[Cell]:
    """Every cell of the tables, table by table, row by row; ``extra`` are overrides of every cell, such as ``seeds=[0]``."""
    return [
        Cell(
            table.key,
            row,
            column,
            (
                *(f"experiment={row.experiment or table.experiment}", f"dataset={column.dataset}", f"algorithm={row.algorithm}"),
                *(*row.overrides, *column.overrides, *overrides_of(row, column), *extra),
            ),
        )
        for table in tables
        for row in table.rows
        for column in table.columns
    ]


def fill(planned: Iterable[Cell], cells: Iterable[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    """The stored cells in their places, as far as they were made by the planned overrides."""
    wanted = {(*cell.key, cell.overrides) for cell in planned}
    return {place[:3]: cell for cell in cells for place in cell["places"] if place in wanted}


def stale(planned: Sequence[Cell], cells: Sequence[Mapping[str, Any]], where: Path) -> None:
    """Warn on stderr of planned places whose stored cells were all made by other overrides."""
    filled, keys = fill(planned, cells), {cell.key for cell in planned}
    other = {place[:3] for cell in cells for place in cell["places"] if place[:3] in keys} - set(filled)
    if other:
        say_once(f"warning: {where}: {len(other)} cells were made by other overrides than are planned, such as {', '.join(min(other))}")


def look_up(published: Printed, table: Table, row: Row, column: Column) -> Published | None:
    """The paper's number in this cell; None if it prints none."""
    place = table.place(row, column)
    return None if place is None else published.find(place)


def in_table(table: Table, stored: Stored) -> list[tuple[str, Mapping[str, Any]]]:
    """The stored cells of a table, with a name for each."""
    keys = [(f"{row.title} on {column.key}", (table.key, row.key, column.key)) for row in table.rows for column in table.columns]
    return [(name, stored[key]) for name, key in keys if key in stored]


def in_order(paper: Paper, cells: Sequence[Cell]) -> list[Cell]:
    """The runs to make, each once: small datasets before ``late`` ones, then the most telling methods first, then by table."""
    rank = {key: position for position, key in enumerate(paper.first)}
    tables = [table.key for table in paper.tables]
    unique: dict[tuple[str, ...], Cell] = {}
    for cell in cells:
        unique.setdefault(cell.overrides, cell)

    def key(cell: Cell) -> tuple[bool, int, int, int]:
        late = paper.late.index(cell.dataset) + 1 if cell.dataset in paper.late else 0
        return bool(late), rank.get(cell.row.key, len(rank)), tables.index(cell.table), late

    return sorted(unique.values(), key=key)
