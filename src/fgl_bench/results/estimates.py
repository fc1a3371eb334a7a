"""Estimates how long a planned run takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from fgl_bench.results.provenance import on_cpu
from fgl_bench.utils.files import write_whole

MEASURED = "measured_rates.csv"  # written by scripts/measure_rates.py below results/
# Nodes and undirected edges of datasets, to estimate the cost of datasets without runs.
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


class Kind(NamedTuple):
    """Key of runs with similar round times."""

    algorithm: str
    model: str
    dataset: str


class Costs:
    """Estimates run times from stored runs.

    The unit is seconds per seed and round with one local epoch. A round has one trip per client; its time does not depend on the number of
    clients, since they share the graph. Without runs of the method and backbone on a dataset, rates on other datasets are scaled by methods
    run on both, or by nodes and edges. A method without runs counts as average. For more epochs see :func:`round_cost`.
    """

    def __init__(
        self, known: Iterable[Mapping[str, Any]], earlier: Mapping[Kind, float] | None = None, measured: Mapping[Kind, float] | None = None
    ):
        """``known``: stored cells. ``earlier``: rates of deleted runs. ``measured``: rates that take precedence."""
        self.earlier, self.measured = earlier or {}, measured or {}
        self.known: list[Mapping[str, Any]] = []
        self.learn(known)

    def learn(self, cells: Iterable[Mapping[str, Any]]) -> None:
        """Add stored cells."""
        self.known += cells
        self.rates = {**self.earlier, **rates_of(self.known), **self.measured}
        self._ratios: dict[tuple[str, str], float] = {}

    def seconds(self, wanted: Kind, seeds: int, rounds: float) -> float | None:
        """Return the seconds of a run of ``rounds`` rounds with one local epoch; None without any run."""
        near = list(self.rates)
        for part, name in enumerate(wanted):
            near = [kind for kind in near if kind[part] == name] or near
        guesses = [self.rates[kind] * self._ratio(kind.dataset, wanted.dataset) for kind in near]
        return geometric_mean(guesses) * seeds * rounds if guesses else None

    def _ratio(self, known: str, wanted: str) -> float:
        """Return the ratio of run times on datasets ``wanted`` and ``known``: from methods run on both, else from sizes."""
        if (known, wanted) not in self._ratios:
            both = [
                self.rates[other] / rate
                for kind, rate in self.rates.items()
                if kind.dataset == known and (other := kind._replace(dataset=wanted)) in self.rates
            ]
            size, known_size = SIZES.get(wanted), SIZES.get(known)
            by_size = sum(size) / sum(known_size) if size and known_size else 1.0
            self._ratios[known, wanted] = median(both) if both else by_size
        return self._ratios[known, wanted]


def round_cost(local_epochs: int) -> float:
    """Return the cost of a round relative to a round with one local epoch.

    Evaluation and server work do not depend on the number of local epochs. Together they cost about two epochs, measured on runs of
    FedSA-GCL's tables with one and with three epochs.
    """
    return (local_epochs + 2) / 3


def rates_of(cells: Iterable[Mapping[str, Any]]) -> dict[Kind, float]:
    """Return the median seconds per seed and round with one local epoch, from CPU runs if there are any, else from all."""
    rates: dict[Kind, list[float]] = {}
    known = list(cells)
    for cell in [cell for cell in known if on_cpu(cell)] or known:
        rounds = cell["client_trips"]["total"] / cell["num_clients"] * round_cost(cell.get("config", {}).get("local_epochs", 1))
        if rounds and cell["seconds"]["total"] > 0:
            kind = Kind(cell["algorithm"], cell.get("model", "gcn"), cell["dataset"])
            rates.setdefault(kind, []).append(cell["seconds"]["total"] / (len(cell["seeds"]) * rounds))
    return {kind: median(values) for kind, values in rates.items()}


def read_rates(path: Path) -> dict[Kind, float]:
    """Read the file of :func:`write_rates`; empty if it does not exist."""
    import pandas as pd

    if not path.is_file():
        return {}
    return {Kind(*kind): rate for *kind, rate in pd.read_csv(path).itertuples(index=False)}


def write_rates(path: Path, rates: Mapping[Kind, float]) -> None:
    """Write seconds per seed and round, with four digits."""
    lines = [",".join((*Kind._fields, "seconds")), *(",".join((*kind, f"{rate:.4g}")) for kind, rate in sorted(rates.items()))]
    write_whole(path, "\n".join(lines) + "\n")


def duration(seconds: float | None) -> str:
    """``about 40 s``, ``about 12 min``, ``about 1.5 h``."""
    if seconds is None:
        return "cost unknown"
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
