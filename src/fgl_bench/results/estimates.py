"""About how long a planned run takes."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fgl_bench.config.identity import canonical_names, without_younger_keys
from fgl_bench.results.hardware import on_cpu
from fgl_bench.utils.files import write_whole

if TYPE_CHECKING:
    from fgl_bench.papers.plan import Cell

MEASURED = "measured_rates.csv"  # what scripts/measure_rates.py writes below results/


class Kind(NamedTuple):
    """What runs share whose rounds cost the same.

    Attributes:
        settings: :func:`settings_of` their configuration; empty where it is not known.
    """

    algorithm: str
    model: str
    dataset: str
    settings: str = ""


# Nodes and undirected edges of data sets: the cost of one that was never run is guessed from them.
SIZES = {
    "cora": (2708, 5429),
    "citeseer": (3327, 4732),
    "pubmed": (19717, 44338),
    "photo": (7650, 119081),
    "computers": (13752, 245861),
    "cs": (18333, 81894),
    "physics": (34493, 247962),
    "flickr": (89250, 449878),
    "reddit": (232965, 57307946),
    "yelp": (716847, 6977410),
    "ogbn_arxiv": (169343, 1157799),
    "ogbn_products": (2449029, 61859140),
    "roman_empire": (22662, 32927),
    "amazon_ratings": (24492, 93050),
    "minesweeper": (10000, 39402),
    "tolokers": (11758, 519000),
    "questions": (48921, 153540),
    "actor": (7600, 26659),
    "twitch": (36890, 492575),
    "facebook100": (104270, 4352533),
    "citation_domains": (23779, 38771),
    "webkb": (617, 1006),
}

COLUMNS = (*Kind._fields, "seconds")


class Sized(Protocol):
    """What knows sizes of data sets: a paper, or the leaderboard."""

    @property
    def sizes(self) -> Mapping[str, tuple[int, int]]:
        """Nodes and undirected edges by data set."""


class Costs:
    """Guesses how long a run takes from the runs that were made.

    Seconds per seed and round (as many trips as there are clients, who share the graph however many they are) of one local epoch are those
    of the method and backbone on the dataset, with the same settings where such runs were made; else on other datasets, scaled by what
    runs on both tell, or by nodes and edges; a method that was never run is taken for an average one. For more epochs see
    :func:`round_cost`.
    """

    def __init__(
        self,
        paper: Sized,
        known: Iterable[Mapping],
        earlier: Mapping[Kind, float] | None = None,
        measured: Mapping[Kind, float] | None = None,
    ):
        """``known`` are stored cells, see ``cells.py``; ``earlier`` are rates of runs that are stored no more; ``measured`` come first."""
        self.sizes = paper.sizes
        before, first = ({kind: [rate] for kind, rate in (rates or {}).items()} for rates in (earlier, measured))
        self.rates = before | rates_of(known) | first
        self._ratios: dict[tuple[str, str], float] = {}

    def of(self, cell: Cell) -> float | None:
        """Seconds that a planned run will take, None where nothing was run."""
        if not cell.digest:
            return None
        rounds = cell.config["trips"] / cell.config["num_clients"] * round_cost(cell.config.get("local_epochs", 1))
        return self.seconds(kind_of(cell), len(cell.config["seeds"]), rounds)

    def seconds(self, wanted: Kind, seeds: int, rounds: float) -> float | None:
        """Seconds of a run of so many rounds of one local epoch, None where nothing was run."""
        near = list(self.rates)
        for part, name in enumerate(wanted):
            near = [kind for kind in near if kind[part] == name] or near
        guesses = [median(self.rates[kind]) * self._ratio(kind.dataset, wanted.dataset) for kind in near]
        return math.exp(sum(map(math.log, guesses)) / len(guesses)) * seeds * rounds if guesses else None

    def _ratio(self, known: str, wanted: str) -> float:
        """How much longer the dataset ``wanted`` takes than ``known``: by what ran on both, else by size."""
        if known == wanted:
            return 1.0
        if (known, wanted) not in self._ratios:
            self._ratios[known, wanted] = self._found_ratio(known, wanted)
        return self._ratios[known, wanted]

    def _found_ratio(self, known: str, wanted: str) -> float:
        both = [
            median(self.rates[other]) / median(rates)
            for kind, rates in self.rates.items()
            if kind.dataset == known and (other := kind._replace(dataset=wanted)) in self.rates
        ]
        if both:
            return median(both)
        size, known_size = self.sizes.get(wanted), self.sizes.get(known)
        return sum(size) / sum(known_size) if size and known_size else 1.0


def round_cost(local_epochs: int) -> float:
    """Of a round, in rounds of one local epoch.

    Both models are scored and the server answers however long clients train: together about two epochs, as runs of FedSA-GCL's tables
    with one and with three tell.
    """
    return (local_epochs + 2) / 3


def kind_of(cell: Cell) -> Kind:
    """What a planned run shares its rate with."""
    return Kind(cell.row.algorithm, model_of(cell.config), cell.dataset, settings_of(cell.config))


def model_of(config: Mapping[str, Any]) -> str:
    """The module of the backbone: presets of one backbone share it."""
    return str(config["model"]["_target_"]).split(".")[-2]


def settings_of(config: Mapping[str, Any]) -> str:
    """Eight digits that tell apart what makes rounds of one method and backbone on one dataset dear or cheap.

    The keys of the method and the backbone count, real numbers among them only as zero or not (a dropout, a weight in the loss), and
    mini-batches and centralized training. Neither the number of clients nor rounds and seeds do.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(inner) for key, inner in value.items()}
        return bool(value) if isinstance(value, float) else value

    groups = {group: plain(without_younger_keys(group, canonical_names(config.get(group)))) for group in ("algorithm", "model")}
    text = json.dumps([groups, config.get("batch_nodes"), config.get("num_clients") == 1], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def rates_of(cells: Iterable[Mapping]) -> dict[Kind, list[float]]:
    """Seconds per seed and round of one local epoch of stored cells: of those made on CPUs, and of others where there are none."""
    rates: dict[Kind, list[float]] = {}
    known = list(cells)
    for cell in [cell for cell in known if on_cpu(cell)] or known:
        rounds = cell["client_trips"]["total"] / cell["num_clients"] * round_cost(cell.get("config", {}).get("local_epochs", 1))
        work = len(cell["seeds"]) * rounds
        if work and cell["seconds"]["total"] > 0:
            config = cell.get("config", {})
            model, settings = (model_of(config), settings_of(config)) if "model" in config else (cell.get("model", "gcn"), "")
            rates.setdefault(Kind(cell["algorithm"], model, cell["dataset"], settings), []).append(cell["seconds"]["total"] / work)
    return rates


def read_rates(path: Path) -> dict[Kind, float]:
    """What :func:`write_rates` wrote; nothing where there is no such file."""
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {Kind(*(row[name] for name in Kind._fields)): float(row["seconds"]) for row in csv.DictReader(file)}


def write_rates(path: Path, cells: Iterable[Mapping]) -> None:
    """Add the rates of stored cells to a file, where they replace those of the same algorithm, model and dataset.
    The file outlives the cells: when a setting changes and its cells go, what a round took is still known.
    """
    rates = read_rates(path) | {kind: median(found) for kind, found in rates_of(cells).items()}
    write_whole(path, table_of(rates))


def table_of(rates: Mapping[Kind, float]) -> str:
    """``rates`` as :func:`read_rates` reads them."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    lines.writerows((*kind, f"{rate:.4g}") for kind, rate in sorted(rates.items()))
    return text.getvalue()


def duration(seconds: float | None) -> str:
    """``about 40 s``, ``about 12 min``, ``about 1.5 h``."""
    if seconds is None:
        return "cost unknown"
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
