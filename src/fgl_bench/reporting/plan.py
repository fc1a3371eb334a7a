"""From a paper's tables to the runs that fill them: which there are, in what order, and about how long each takes."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from fgl_bench.config import label, resolve_budget
from fgl_bench.errors import UserError
from fgl_bench.reporting.store import config_hash, identity, run_folder
from fgl_bench.schema import config_folder, register_all


@dataclass(frozen=True)
class Row:
    """A method as a row of a table.

    Attributes:
        key: its name in commands; unique within the paper.
        algorithm: choice of the group ``algorithm``.
        overrides: further keys, which make a variant of it.
        published: the method's name in the paper's csv; None if the paper has no such row.
    """

    key: str
    title: str
    algorithm: str
    overrides: tuple[str, ...] = ()
    published: str | None = None


@dataclass(frozen=True)
class Table:
    """One table (or figure) of a paper.

    Attributes:
        key: the paper's number, or the figure's name.
        experiment: the preset.
        measure: ``accuracy``, ``trips`` (to the printed target), or ``curves``, whose runs are made but fill no table.
    """

    key: str
    experiment: str
    title: str
    measure: str
    datasets: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Paper:
    """A paper's tables.

    Attributes:
        tables: in the order in which their runs are made.
        first: keys of the most telling rows, which are run first.
        dataset_overrides: keys that go with a dataset.
        sizes: nodes and edges by dataset.
        late: datasets that are run after all others.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    first: tuple[str, ...]
    dataset_overrides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    late: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One run that a table needs.

    Attributes:
        overrides: of the command, presentation keys left out.
        digest: configuration hash; empty when the method is not available.
        folder: the run directory below the folder of runs.
        config: what the hash is of, see ``store.identity``.
    """

    table: str
    row: Row
    dataset: str
    overrides: tuple[str, ...]
    digest: str
    folder: Path
    config: Mapping = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        return f"{'table ' * self.table.isdigit()}{self.table}, {self.dataset}, {self.row.key}"

    @property
    def command(self) -> str:
        """What a person types to make this run alone."""
        return " ".join(("fgl-bench", *self.overrides))


def papers() -> list[str]:
    """The papers whose tables can be reproduced."""
    return sorted(path.stem for path in (Path(__file__).parent / "papers").glob("[!_]*.py"))


def load_paper(name: str) -> Paper:
    """The paper called ``name``.

    Raises:
        UserError: there is none.
    """
    if name not in papers():
        raise UserError(f"PAPER={name}: no tables of that paper here; allowed: {', '.join(papers())}")
    return importlib.import_module(f"fgl_bench.reporting.papers.{name}").PAPER


class Composer:
    """Composes configurations as the command line would; a context manager, since Hydra keeps its state globally."""

    def __enter__(self) -> Composer:
        register_all(ConfigStore.instance())
        GlobalHydra.instance().clear()
        initialize_config_dir(version_base="1.3", config_dir=str(config_folder()))
        return self

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().clear()

    def __call__(self, overrides: Iterable[str]) -> DictConfig:
        return compose("config", list(overrides))


def available(algorithm: str) -> bool:
    """Whether the group ``algorithm`` has this choice."""
    return (config_folder() / "algorithm" / f"{algorithm}.yaml").is_file()


def plan(paper: Paper, tables: Sequence[Table], extra: Sequence[str] = ()) -> list[Cell]:
    """Every cell of the tables, table by table, row by row.

    A synchronous method of a table of trips is evaluated once a round whatever ``eval_every`` says, so its run is the one of the
    accuracy table with the same setting.

    Args:
        extra: overrides of every cell, such as ``seeds=[0]``.
    """
    cells = []
    of_rest = [text for text in extra if not text.startswith("dataset.")]
    with Composer() as composed:
        data = {}  # composing takes a tenth of a second, and a dataset is the same in every cell
        for name in dict.fromkeys(name for table in tables for name in table.datasets):
            of_data = [text for text in extra if text.startswith("dataset.")]
            data[name] = composed((f"dataset={name}", *paper.dataset_overrides.get(name, ()), *of_data)).dataset
        for table in tables:
            for row in table.rows:
                cfg = None
                if available(row.algorithm):
                    cfg = composed((f"experiment={table.experiment}", f"algorithm={row.algorithm}", *row.overrides, *of_rest))
                    once = table.measure == "trips" and label(cfg, "scenario") == "sync"
                    cfg.eval_every = None if once else cfg.eval_every
                for dataset in table.datasets:
                    start = (f"experiment={table.experiment}", f"dataset={dataset}", f"algorithm={row.algorithm}")
                    overrides = (*start, *row.overrides, *paper.dataset_overrides.get(dataset, ()), *extra)
                    if cfg is None:
                        cells.append(Cell(table.key, row, dataset, overrides, "", Path()))
                        continue
                    cfg.dataset = data[dataset]
                    overrides += ("eval_every=null",) if once else ()
                    cells.append(Cell(table.key, row, dataset, overrides, *located(cfg)))
    return cells


def located(cfg: DictConfig) -> tuple[str, Path, dict]:
    """The configuration's hash, its run directory below the folder of runs, and what the hash is of."""
    what = identity(cfg, *resolve_budget(cfg))
    digest = config_hash(what)
    names = (label(cfg, group) for group in ("dataset", "split", "scenario", "algorithm"))
    dataset, split, scenario, algorithm = names
    return digest, run_folder(Path(), dataset, split, cfg.num_clients, scenario, algorithm, digest), what


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


class Costs:
    """Guesses how long a run takes from the runs that were made.

    Seconds per seed and trip are those of the method on the dataset; else on other datasets, scaled by what methods that ran on both
    tell, or by nodes and edges; a method that was never run is taken for an average one.
    """

    def __init__(self, paper: Paper, known: Iterable[Mapping]):
        """``known`` are stored cells, see ``cells.py``."""
        self.sizes = paper.sizes
        self.rates: dict[tuple[str, str], list[float]] = {}
        for cell in known:
            work = len(cell["seeds"]) * cell["client_trips"]["total"]
            if work and cell["seconds"]["total"] > 0:
                self.rates.setdefault((cell["algorithm"], cell["dataset"]), []).append(cell["seconds"]["total"] / work)

    def seconds(self, algorithm: str, dataset: str, seeds: int, trips: int) -> float | None:
        """Seconds of a run, None where nothing was run."""
        own = [key for key in self.rates if key[0] == algorithm] or list(self.rates)
        nearest = [key for key in own if key[1] == dataset] or own
        guesses = [median(self.rates[key]) * self._ratio(key[1], dataset) for key in nearest]
        return math.exp(sum(map(math.log, guesses)) / len(guesses)) * seeds * trips if guesses else None

    def _ratio(self, known: str, wanted: str) -> float:
        """How much longer the dataset ``wanted`` takes than ``known``: by methods that ran on both, else by size."""
        if known == wanted:
            return 1.0
        both = [
            median(self.rates[name, wanted]) / median(rates)
            for (name, dataset), rates in self.rates.items()
            if dataset == known and (name, wanted) in self.rates
        ]
        if both:
            return median(both)
        sizes = [self.sizes.get(name) for name in (wanted, known)]
        return sum(sizes[0]) / sum(sizes[1]) if all(sizes) else 1.0


def duration(seconds: float | None) -> str:
    """``about 40 s``, ``about 12 min``, ``about 1.5 h``."""
    if seconds is None:
        return "cost unknown"
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
