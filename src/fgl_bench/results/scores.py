"""The number that a cell of a user's table shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import spread
from fgl_bench.results.divergence import MARK, diverged_seeds
from fgl_bench.results.frame import Result, trips_to
from fgl_bench.results.question import short

TRIPS = "trips_to_"
OF_CLIENTS = {"worst_client": min, "best_client": max}
OTHERS = ("last", *OF_CLIENTS, f"{TRIPS}TARGET")


@dataclass(frozen=True)
class Score:
    """A run's number for one kind of model, in percent or in trips.

    Attributes:
        mean, half, std: over the seeds that have a score; half the width of the 95 % t-interval; None where not defined.
        per_seed: by seed; None where a seed has no score.
        lower: whether less is better.
        diverged: whether a seed of the run has diverged.
    """

    mean: float | None
    half: float | None
    std: float | None
    per_seed: Mapping[int, float | None]
    lower: bool = False
    diverged: bool = False

    @property
    def complete(self) -> bool:
        """Whether every seed has a score: the mean of the others would favor a method that fails."""
        return None not in self.per_seed.values()

    def text(self, digits: int) -> str:
        """``81.2 ± 0.6``; (n/m) where only n of m seeds have a score, a dagger where one has diverged."""
        if self.mean is None:
            return "no score"
        known = sum(value is not None for value in self.per_seed.values())
        half = "" if self.half is None else f" ± {self.half:.{digits}f}"
        return f"{self.mean:.{digits}f}{half}" + ("" if self.complete else f" ({known}/{len(self.per_seed)})") + f" {MARK}" * self.diverged

    def better(self, value: float) -> float:
        """``value``, or its negative where less is better."""
        return -value if self.lower else value


def score(run: Result, metric: str | None, model: str) -> Score:
    """The test score of one kind of model at the best validation point.

    Args:
        metric: None or the run's own; another one that it reported (``metrics=[macro_f1]``); ``last``: at the end; ``worst_client``,
            ``best_client``; ``trips_to_0.7``: client trips to a validation score, any of a run's, of a stored cell one of its ``targets``.

    Raises:
        UserError: the run has no such number.
    """
    summary = run.summary
    test = summary["test"][model]
    if metric is None or metric == summary["metric"]:
        return of(summary, test["per_seed"])
    if metric == "last" and "per_seed" in test.get("last", {}):
        return of(summary, test["last"]["per_seed"])
    if metric in OF_CLIENTS and "per_client" in test:
        chosen = [[each for each in clients if each is not None] for clients in test["per_client"]]
        return of(summary, [OF_CLIENTS[metric](clients) if clients else None for clients in chosen])
    if metric in summary.get("metrics", {}):
        return of(summary, summary["metrics"][metric][model]["per_seed"])
    targets = summary["client_trips"]["to_target"]
    if metric.startswith(TRIPS) and is_share(goal := metric.removeprefix(TRIPS)):
        by_model = next((found for target, found in targets.items() if float(target) == float(goal)), None)
        if by_model is None and (run.folder / "history.csv").is_file():
            by_model = trips_to(run, float(goal))
        if by_model is not None:
            per_seed = by_model[model]["per_seed"] if model in by_model else [None] * len(summary["seeds"])  # not scored at every point
            return of(summary, per_seed, scale=1.0, lower=True)
    allowed = [summary["metric"], *summary.get("metrics", {}), *(f"{TRIPS}{target}" for target in targets), "last"]
    allowed += [*OF_CLIENTS] if "per_client" in test else []
    raise UserError(f"metric={short(metric)}: {name_of(summary)} has no such number{suggest(metric, allowed)}")


def of(summary: Mapping[str, Any], per_seed: Sequence[float | None], scale: float = 100.0, lower: bool = False) -> Score:
    """A score from the values by seed."""
    scaled = [None if value is None else scale * value for value in per_seed]
    found = spread([float("nan") if value is None else value for value in scaled])
    seeds = dict(zip(summary["seeds"], scaled, strict=True))
    return Score(found["mean"], found["ci95"], found["std"], seeds, lower, bool(diverged_seeds(summary)))


def is_share(text: str) -> bool:
    return bool(re.fullmatch(r"\d*\.?\d+", text)) and 0 <= float(text) <= 1


def name_of(summary: Mapping[str, Any]) -> str:
    return f"{summary['algorithm']} on {summary['dataset']}, {summary['split']}-{summary['num_clients']},"


def heading(metrics: Sequence[str], metric: str | None) -> str:
    """What the numbers are, such as ``test accuracy in %``."""
    own = " or ".join(metric.replace("_", " ") for metric in dict.fromkeys(metrics))
    if metric is None or metric in metrics:
        return f"test {own} in %"
    if metric.startswith(TRIPS):
        return f"client trips to a validation {own} of {100 * float(metric.removeprefix(TRIPS)):g} %"
    name = metric.replace("_", " ")
    if metric in OF_CLIENTS:
        return f"test {own} in % of the {name}"
    return f"test {own} in % at the last point" if metric == "last" else f"test {name} in %"
