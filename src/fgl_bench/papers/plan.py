"""The plan of a paper's tables: the runs of every cell, their commands and their order."""

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
"""A cell of a table: keys of the table, the row and the column."""
Stored = Mapping[Key, Mapping[str, Any]]
"""Stored results by cell."""


@dataclass(frozen=True)
class Row:
    """A method as a row of a table.

    Attributes:
        key: name in commands; unique within the paper.
        algorithm: choice of the group ``algorithm``.
        overrides: further keys, for a variant.
        published: the method's name in the paper's csv; None if the paper has no such row.
        where: further columns of the csv that identify its published cells (``backbone``, ``variant``, ...).
        settings: overrides that depend on the column: the first entry whose other keys match the column is used.
        experiment: preset, if the run belongs to another table.
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
    """A setting in which every row of a table is run.

    Attributes:
        dataset: choice of the group ``dataset``.
        group: heading of its part of the table ("10 clients"); every part has separate means.
        overrides: further keys (``num_clients=10``).
        where: columns of the csv that identify its published cells (``num_clients``, ``split``, ...).
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
    """Return one column per dataset."""
    return tuple(Column(dataset, group, overrides, where) for dataset in datasets)


@dataclass(frozen=True)
class Table:
    """One table (or figure) of a paper.

    Attributes:
        key: the paper's table number, or the figure's name; ``2_f1`` for the F1 scores of the paper's table 2.
        experiment: the preset.
        measure: ``accuracy`` (or one of ``measures.SELECTED``), ``trips`` (to the printed target), ``seconds`` (per round),
            ``costs`` (at equal accuracy), another metric of the summaries, or ``curves``, whose runs fill no table.
        where: columns of the csv that identify its published cells; ``table`` defaults to the key.
        with_bytes: show the bytes that a client sends per round.
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
        """The distinct datasets, in column order."""
        return tuple(dict.fromkeys(column.dataset for column in self.columns))

    def place(self, row: Row, column: Column) -> dict[str, str] | None:
        """Return the csv columns of this cell's published score; None if the paper has no such row."""
        if row.published is None:
            return None
        fixed = {"table": self.key, "dataset": column.dataset, "method": row.published, "variant": "default"}
        return {**fixed, **self.where, **column.where, **row.where}


@dataclass(frozen=True)
class Paper:
    """A paper's tables.

    Attributes:
        tables: in the order of their runs.
        first: keys of the most informative rows, which run first.
        late: datasets that run after all others.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    first: tuple[str, ...]
    late: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A planned cell of a table.

    Attributes:
        overrides: overrides of its run's command, without presentation keys.
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
        """The command of this run."""
        return " ".join(("fgl-bench", *self.overrides))


def papers() -> list[str]:
    """Return the names of the papers whose tables can be reproduced."""
    return sorted(path.stem for path in PLANS.glob("*.yaml"))


@cache
def load_paper(name: str) -> Paper:
    """Load the paper ``name`` from ``plans/<name>.yaml``.

    Raises:
        UserError: the paper is unknown.
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
    return Paper(name, content["title"], tables, tuple(content["first"]), tuple(content.get("late", ())))


def table_of(key: str, entry: Mapping[str, Any], rows: Mapping[str, Row]) -> Table:
    """Build a table from its entry in the file, which groups columns by setting and references rows by name."""
    columns = [Column(dataset, **frozen(keys)) for keys in entry["columns"] for dataset in keys.pop("datasets")]
    return Table(key, **frozen({**entry, "columns": columns, "rows": [rows[name] for name in entry["rows"]]}))


def frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry with tuples instead of lists."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def overrides_of(row: Row, column: Column) -> tuple[str, ...]:
    """Return the row's settings for a column."""
    about = {"dataset": column.dataset, **column.where}
    fitting = (entry for entry in row.settings if all(about.get(key) == value for key, value in entry.items() if key != "overrides"))
    return tuple(next(fitting, {"overrides": ()})["overrides"])


def plan(tables: Iterable[Table], extra: Sequence[str] = ()) -> list[Cell]:
    """Return all cells, by table and row; ``extra`` are overrides of every cell, such as ``seeds=[0]``."""
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
    """Return the stored cells by key, if they were made with the planned overrides."""
    wanted = {(*cell.key, cell.overrides) for cell in planned}
    return {key[:3]: cell for cell in cells for key in cell["places"] if key in wanted}


def stale(planned: Sequence[Cell], cells: Sequence[Mapping[str, Any]], where: Path) -> None:
    """Warn on stderr of planned cells whose stored results were all made with other overrides."""
    filled, keys = fill(planned, cells), {cell.key for cell in planned}
    other = {key[:3] for cell in cells for key in cell["places"] if key[:3] in keys} - set(filled)
    if other:
        say_once(f"warning: {where}: {len(other)} cells were made with other overrides than planned, such as {', '.join(min(other))}")


def look_up(published: Printed, table: Table, row: Row, column: Column) -> Published | None:
    """Return the published score of this cell; None if there is none."""
    where = table.place(row, column)
    return None if where is None else published.find(where)


def in_table(table: Table, stored: Stored) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the stored cells of a table with their names."""
    keys = [(f"{row.title} on {column.key}", (table.key, row.key, column.key)) for row in table.rows for column in table.columns]
    return [(name, stored[key]) for name, key in keys if key in stored]


def in_order(paper: Paper, cells: Sequence[Cell]) -> list[Cell]:
    """Return the distinct runs in order: ``late`` datasets last, then the most informative methods first, then by table."""
    rank = {key: position for position, key in enumerate(paper.first)}
    tables = [table.key for table in paper.tables]
    unique: dict[tuple[str, ...], Cell] = {}
    for cell in cells:
        unique.setdefault(cell.overrides, cell)

    def key(cell: Cell) -> tuple[bool, int, int, int]:
        late = paper.late.index(cell.dataset) + 1 if cell.dataset in paper.late else 0
        return bool(late), rank.get(cell.row.key, len(rank)), tables.index(cell.table), late

    return sorted(unique.values(), key=key)
