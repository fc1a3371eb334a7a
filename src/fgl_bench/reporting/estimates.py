"""About how long a planned run takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median

from fgl_bench.reporting.plan import Cell, Paper


class Costs:
    """Guesses how long a run takes from the runs that were made.

    Seconds per seed and round (as many trips as there are clients, who share the graph however many they are) are those of the method
    and backbone on the dataset; else on other datasets, scaled by what runs on both tell, or by nodes and edges; a method that was
    never run is taken for an average one.
    """

    def __init__(self, paper: Paper, known: Iterable[Mapping]):
        """``known`` are stored cells, see ``cells.py``."""
        self.sizes = paper.sizes
        self.rates: dict[tuple[str, str, str], list[float]] = {}
        for cell in known:
            work = len(cell["seeds"]) * cell["client_trips"]["total"] / cell["num_clients"]
            if work and cell["seconds"]["total"] > 0:
                kind = (cell["algorithm"], cell.get("model", "gcn"), cell["dataset"])
                self.rates.setdefault(kind, []).append(cell["seconds"]["total"] / work)

    def of(self, cell: Cell) -> float | None:
        """Seconds that a planned run will take, None where nothing was run."""
        if not cell.digest:
            return None
        model = str(cell.config["model"]["_target_"]).split(".")[-2]
        rounds = cell.config["trips"] / cell.config["num_clients"]
        return self.seconds(cell.row.algorithm, cell.dataset, len(cell.config["seeds"]), rounds, model)

    def seconds(self, algorithm: str, dataset: str, seeds: int, rounds: float, model: str = "gcn") -> float | None:
        """Seconds of a run, None where nothing was run."""
        near = [key for key in self.rates if key[0] == algorithm] or list(self.rates)
        near = [key for key in near if key[1] == model] or near
        near = [key for key in near if key[2] == dataset] or near
        guesses = [median(self.rates[key]) * self._ratio(key[2], dataset) for key in near]
        return math.exp(sum(map(math.log, guesses)) / len(guesses)) * seeds * rounds if guesses else None

    def _ratio(self, known: str, wanted: str) -> float:
        """How much longer the dataset ``wanted`` takes than ``known``: by what ran on both, else by size."""
        if known == wanted:
            return 1.0
        both = [
            median(self.rates[algorithm, model, wanted]) / median(rates)
            for (algorithm, model, dataset), rates in self.rates.items()
            if dataset == known and (algorithm, model, wanted) in self.rates
        ]
        if both:
            return median(both)
        size, known_size = self.sizes.get(wanted), self.sizes.get(known)
        return sum(size) / sum(known_size) if size and known_size else 1.0


def duration(seconds: float | None) -> str:
    """``about 40 s``, ``about 12 min``, ``about 1.5 h``."""
    if seconds is None:
        return "cost unknown"
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
