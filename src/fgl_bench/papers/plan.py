"""From a paper's tables to the runs that fill them: which there are, in what order, and about how long each takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from omegaconf import OmegaConf

from fgl_bench.config.choices import config_folder
from fgl_bench.config.compose import Composer
from fgl_bench.config.groups import build
from fgl_bench.config.parts import Configured, Parts
from fgl_bench.config.settings import resolve_budget
from fgl_bench.data.sums import fingerprint
from fgl_bench.errors import UserError
from fgl_bench.results.estimates import SIZES
from fgl_bench.results.store import config_hash, identity, run_folder


@dataclass(frozen=True)
class Row:
    """A method as a row of a table.

    Attributes:
        key: its name in commands; unique within the paper.
        algorithm: choice of the group ``algorithm``.
        overrides: further keys, which make a variant of it.
        published: the method's name in the paper's csv; None if the paper has no such row.
        where: what else tells its printed cells from others, by the csv's columns (``backbone``, ``variant``, ...).
        by_column: keys besides that depend on the setting, such as what its authors chose for a dataset.
    """

    key: str
    title: str
    algorithm: str
    overrides: tuple[str, ...] = ()
    published: str | None = None
    where: Mapping[str, str] = field(default_factory=dict, compare=False)
    by_column: Callable[[Column], tuple[str, ...]] = field(default=lambda _: (), compare=False, repr=False)


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
        sizes: nodes and edges by dataset.
        late: datasets that are run after all others.
        basis: what its rows are chosen on; None where nothing is chosen.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    first: tuple[str, ...]
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SIZES)
    late: tuple[str, ...] = ()
    basis: Basis | None = None


@dataclass(frozen=True)
class Cell:
    """One run that a table needs.

    Attributes:
        overrides: of the command, presentation keys left out.
        digest: configuration hash; empty when the method is not available or not wanted.
        folder: the run directory below the folder of runs.
        config: what the hash is of, see ``store.identity``; empty where there is none.
    """

    table: str
    row: Row
    column: Column
    overrides: tuple[str, ...]
    digest: str
    folder: Path
    config: Mapping = field(default_factory=dict, compare=False)

    @property
    def dataset(self) -> str:
        return self.column.dataset

    def on(self, content: Mapping[str, str]) -> Cell:
        """The cell with these sums of raw files as part of what it is, see ``store.identity``."""
        if not content or not self.digest:
            return self
        what = {**self.config, "data": dict(content)}
        return replace(self, digest=config_hash(what), folder=self.folder.with_name(config_hash(what)), config=what)

    @property
    def name(self) -> str:
        return f"{'table ' * self.table[0].isdigit()}{self.table}, {self.column.key}, {self.row.key}"

    @property
    def command(self) -> str:
        """What a person types to make this run alone."""
        return " ".join(("fgl-bench", *self.overrides))


def papers() -> list[str]:
    """The papers whose tables can be reproduced."""
    return sorted(path.stem for path in (Path(__file__).parent / "plans").glob("[!_]*.py"))


def load_paper(name: str) -> Paper:
    """The paper called ``name``.

    Raises:
        UserError: there is none.
    """
    if name not in papers():
        raise UserError(f"PAPER={name}: no tables of that paper here; allowed: {', '.join(papers())}")
    return importlib.import_module(f"fgl_bench.papers.plans.{name}").PAPER


def available(algorithm: str) -> bool:
    """Whether the group ``algorithm`` has this choice."""
    return (config_folder() / "algorithm" / f"{algorithm}.yaml").is_file()


def plan(
    paper: Paper,
    tables: Sequence[Table],
    extra: Sequence[str] = (),
    data_dir: str | None = None,
    parts: Parts | None = None,
    wanted: Collection[tuple[str, str]] | None = None,
) -> list[Cell]:
    """Every cell of the tables, table by table, row by row.

    A synchronous method of a table of trips is evaluated once a round whatever ``eval_every`` says, so its run is the one of the
    accuracy table with the same setting.

    Args:
        extra: overrides of every cell, such as ``seeds=[0]``.
        data_dir: folder of raw files; None takes the configuration's.
        parts: composes; what it has composed for other papers is not composed again.
        wanted: data sets and methods; cells of others are not composed and have no digest. None for all.
    """
    if parts is None:
        with Composer() as composer:
            return plan(paper, tables, extra, data_dir, Parts(composer), wanted)
    places = [(table, row, column) for table in tables for row in table.rows for column in table.columns]
    commands = [
        (
            *(f"experiment={table.experiment}", f"dataset={column.dataset}", f"algorithm={row.algorithm}"),
            *(*row.overrides, *column.overrides, *row.by_column(column)),
            *extra,
        )
        for table, row, column in places
    ]
    there = {name for _, row, _ in places if available(name := row.algorithm)}
    asked = [
        row.algorithm in there and (wanted is None or (column.dataset, row.algorithm) in wanted or table.measure == "trips")
        for table, row, column in places
    ]
    parts.expect(overrides for overrides, wish in zip(commands, asked, strict=True) if wish)
    datasets = dict.fromkeys(column.dataset for (_, _, column), wish in zip(places, asked, strict=True) if wish)
    content = {name: raw_sums(name, extra, data_dir, parts) for name in datasets}
    cells = []
    for (table, row, column), overrides, wish in zip(places, commands, asked, strict=True):
        if not wish:
            cells.append(Cell(table.key, row, column, overrides, "", Path()))
            continue
        cfg = parts(overrides)
        if table.measure == "trips" and cfg.names["scenario"] == "sync":
            overrides += ("eval_every=null",)
            cfg = parts(overrides)
        cells.append(Cell(table.key, row, column, overrides, *placed(cfg, content[column.dataset])))
    return cells


def raw_sums(dataset: str, extra: Sequence[str], data_dir: str | None, parts: Parts) -> dict[str, str] | None:
    """Sums of the dataset's raw files that the package does not know; None where one is absent."""
    of_data = [text for text in extra if text.startswith("dataset.")]
    cfg = parts((f"dataset={dataset}", *of_data))
    where = cfg.plain if data_dir is None else {**cfg.plain, "data_dir": data_dir}
    return fingerprint(build(OmegaConf.create(where["dataset"])), where["data_dir"], where["cache_dir"])


def placed(cfg: Configured, content: Mapping[str, str] | None = None) -> tuple[str, Path, dict]:
    """The configuration's hash, its run directory below the folder of runs, and what the hash is of.

    Args:
        content: sums of raw files that the package does not know.
    """
    what = identity(cfg.plain, *resolve_budget(cfg.settings), content)
    digest = config_hash(what)
    dataset, split, scenario, algorithm = (cfg.names[group] for group in ("dataset", "split", "scenario", "algorithm"))
    return digest, run_folder(Path(), dataset, split, cfg.settings.num_clients, scenario, algorithm, digest), what


def in_order(paper: Paper, cells: Sequence[Cell]) -> list[Cell]:
    """The runs to make, each once: small datasets before ``late`` ones, then the most telling methods first, then by table."""
    rank = {key: position for position, key in enumerate(paper.first)}
    tables = [table.key for table in paper.tables]
    unique: dict[str, Cell] = {}
    for cell in cells:
        if cell.digest:
            unique.setdefault(cell.digest, cell)

    def key(cell: Cell) -> tuple:
        late = paper.late.index(cell.dataset) + 1 if cell.dataset in paper.late else 0
        return bool(late), rank.get(cell.row.key, len(rank)), tables.index(cell.table), late

    return sorted(unique.values(), key=key)
