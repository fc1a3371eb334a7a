"""What a user's own table shows: means with intervals, the best of every column, paired tests against it, average ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import spread
from fgl_bench.results import statistics
from fgl_bench.results.choose import Chosen, Values
from fgl_bench.results.divergence import MARK, diverged_seeds
from fgl_bench.results.frame import Result, trips_to
from fgl_bench.results.question import Question, short
from fgl_bench.results.render import number
from fgl_bench.results.statistics import Ranks

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
        return number(self.mean, digits, self.half, [*self.per_seed.values()]) + f" {MARK}" * (self.diverged and self.mean is not None)

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


Place = tuple[Values, Values]
NAMED = ("algorithm", "dataset", "split", "model", "scenario", "sparsity", "metric", "optimizer")


@dataclass(frozen=True)
class Standing:
    """A cell against the best one of its column.

    Attributes:
        p: two-sided paired t-test over the common seeds, after Holm's correction for the comparisons of the column; None for the best
            cell and where there are no two common seeds.
        seeds: how many the test had; 0 without a test.
        best: whether no other mean of the column is better.
        alike: whether it does not differ significantly from the best.
    """

    p: float | None = None
    seeds: int = 0
    best: bool = False
    alike: bool = False


@dataclass(frozen=True)
class Block:
    """The part of a table that scores one kind of model.

    Attributes:
        scores: by (row, column); those of missing runs are absent.
        tests: of the cells that compete: every seed has a score.
        ranks: over ``ranked`` columns, those in which all rows compete; None for fewer than two rows or columns.
    """

    model: str
    scores: Mapping[Place, Score]
    tests: Mapping[Place, Standing]
    ranks: Ranks | None
    ranked: tuple[Values, ...] = ()


@dataclass(frozen=True)
class Compared:
    """Runs by row and column, with scores, tests and ranks.

    Attributes:
        folder: where the runs are.
        chosen: runs by row and column.
        digits: after the decimal point.
        width: characters in a line of ``str()``.
    """

    folder: Path
    chosen: Chosen
    digits: int = 1
    width: int = field(default=80, compare=False)

    @property
    def question(self) -> Question:
        return self.chosen.question

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """One for each kind of model."""
        return tuple(block(self.chosen, model) for model in self.question.model_of)

    @cached_property
    def missing(self) -> tuple[Place, ...]:
        """Combinations without a run."""
        return tuple((row, column) for row in self.chosen.rows for column in self.chosen.columns if (row, column) not in self.chosen.runs)

    @property
    def unit(self) -> str:
        """What the numbers are."""
        return heading([run.summary["metric"] for run in self.chosen.runs.values()], self.question.metric)


def block(chosen: Chosen, model: str) -> Block:
    """Scores, tests and ranks of one kind of model."""
    scores = {place: score(run, chosen.question.metric, model) for place, run in chosen.runs.items()}
    tests: dict[Place, Standing] = {}
    for column in chosen.columns:
        here = {row: found for row in chosen.rows if (found := scores.get((row, column))) and found.mean is not None and found.complete}
        tests |= {(row, column): test for row, test in tested(here).items()}
    rows = [row for row in chosen.rows if any((row, column) in tests for column in chosen.columns)]
    ranked = tuple(column for column in chosen.columns if all((row, column) in tests for row in rows))
    ranks = statistics.average_ranks({label(row): [value_of(scores[row, column]) for column in ranked] for row in rows}) if rows else None
    return Block(model, scores, tests, ranks, ranked)


def value_of(found: Score) -> float:
    """The mean; larger is better."""
    assert found.mean is not None
    return found.better(found.mean)


def tested(scores: Mapping[Values, Score]) -> dict[Values, Standing]:
    """The cells of a column against its best."""
    if not scores:
        return {}
    top = max(value_of(found) for found in scores.values())
    common = [seed for seed in next(iter(scores.values())).per_seed if all(seed in found.per_seed for found in scores.values())]
    by_seed = {label(row): [found.better(found.per_seed[seed] or 0.0) for seed in common] for row, found in scores.items()}
    if len(common) < 2 or len(scores) < 2:
        return {row: Standing(best=value_of(found) == top) for row, found in scores.items()}
    compared = statistics.against(label(next(row for row, found in scores.items() if value_of(found) == top)), by_seed)
    adjusted = {each.name: each for each in compared}
    return {
        row: Standing(adjusted[label(row)].adjusted, len(common), value_of(found) == top, not adjusted[label(row)].worse)
        if label(row) in adjusted
        else Standing(best=True)
        for row, found in scores.items()
    }


def label(values: Sequence[str]) -> str:
    """Values as one name."""
    return " ".join(values) or "all"


def column_label(keys: Sequence[str], values: Sequence[str]) -> str:
    """Values as the heading of a column: choices by their names, other keys as ``lr=0.1``."""
    return label([value if key in NAMED else f"{key.rpartition('.')[2]}={value}" for key, value in zip(keys, values, strict=True)])
