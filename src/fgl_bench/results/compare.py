"""Contents of a table of runs: means with intervals, the best cell per column, paired tests against it, average ranks."""

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
from fgl_bench.results.choose import GROUPS, Chosen, Values
from fgl_bench.results.frame import CLIENT, Result, cost_to
from fgl_bench.results.question import Question, short
from fgl_bench.results.render import number
from fgl_bench.results.scored import MARK, diverged_seeds, of_task
from fgl_bench.results.statistics import Ranks

TO_TARGET = {  # unit in headings, column of history.csv, and a unit of it
    "trips": ("client trips", "trip", 1.0),
    "rounds": ("rounds or server steps", "round", 1.0),
    "bytes": ("MB up and down", "bytes", 1e-6),
    "time": ("virtual time", "time", 1.0),
}
COST = re.compile(rf"({'|'.join(TO_TARGET)})_to_(0|1|1\.0+|0?\.\d+)")
OF_CLIENTS = {"worst_client": min, "best_client": max}
OTHERS = ("last", *OF_CLIENTS, *(f"{cost}_to_TARGET" for cost in TO_TARGET))


@dataclass(frozen=True)
class Score:
    """The score of a run for one kind of model, in percent or in trips.

    Attributes:
        mean, half, std: mean over the scored seeds, half-width of the 95 % t-interval and standard deviation; None if undefined.
        per_seed: by seed; None where a seed has no score.
        lower: True if lower is better.
        diverged: True if a seed of the run diverged.
    """

    mean: float | None
    half: float | None
    std: float | None
    per_seed: Mapping[int, float | None]
    lower: bool = False
    diverged: bool = False

    @property
    def complete(self) -> bool:
        """Return True if every seed has a score; a mean of only some seeds would favor a method that fails."""
        return None not in self.per_seed.values()

    def text(self, digits: int) -> str:
        """Return ``81.2 ± 0.6``, with (n/m) if only n of m seeds have a score and a dagger if a seed diverged."""
        return number(self.mean, digits, self.half, [*self.per_seed.values()]) + f" {MARK}" * (self.diverged and self.mean is not None)

    def better(self, value: float) -> float:
        """Return ``value``, negated if lower is better."""
        return -value if self.lower else value


def score(run: Result, metric: str | None, model: str) -> Score:
    """Return the test score of one kind of model at the best validation point.

    Args:
        metric: None for the run's own metric, another reported metric (``metrics=[macro_f1]``), ``last`` (at the end),
            ``worst_client``, ``best_client``, or ``trips_to_0.7``: client trips to a validation score, so also ``rounds_to_``,
            ``bytes_to_`` and ``time_to_``. A stored cell knows only the trips to its ``targets``.

    Raises:
        UserError: the run has no such score.
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
    if CLIENT in summary:
        raise UserError(f"metric={short(metric)}: one client is scored by {summary['metric']} alone, of the run's selected point")
    targets = summary["client_trips"]["to_target"]
    if cost := COST.fullmatch(metric):
        _, column, unit = TO_TARGET[cost[1]]
        stored = next((count for target, count in targets.items() if float(target) == float(cost[2])), None)
        by_model = None
        if cost[1] == "trips" and stored is not None:
            by_model = {model: count["per_seed"] for model, count in stored.items()}
        elif (run.folder / "history.csv").is_file():
            by_model = cost_to(run, float(cost[2]), column)
        if by_model is not None:
            return of(summary, by_model.get(model, [None] * len(summary["seeds"])), scale=unit, lower=True)  # or not scored at every point
    allowed = [summary["metric"], *summary.get("metrics", {}), *(f"trips_to_{target}" for target in targets), *OTHERS]
    raise UserError(f"metric={short(metric)}: {name_of(summary)} has no such number{suggest(metric, allowed)}")


def of(summary: Mapping[str, Any], per_seed: Sequence[float | None], scale: float = 100.0, lower: bool = False) -> Score:
    """Build a score from the values per seed."""
    scaled = [None if value is None else scale * value for value in per_seed]
    stats = spread([float("nan") if value is None else value for value in scaled])
    seeds = dict(zip(summary["seeds"], scaled, strict=True))
    return Score(stats["mean"], stats["ci95"], stats["std"], seeds, lower, bool(diverged_seeds(summary)))


def name_of(summary: Mapping[str, Any]) -> str:
    return f"{summary['algorithm']} on {summary['dataset']}, {summary['split']}-{summary['num_clients']},"


def heading(metrics: Sequence[str], metric: str | None) -> str:
    """Return the quantity and unit, such as ``test accuracy in %``."""
    own = " or ".join(metric.replace("_", " ") for metric in dict.fromkeys(metrics))
    if metric is None or metric in metrics:
        return f"test {own} in %"
    if cost := COST.fullmatch(metric):
        return f"{TO_TARGET[cost[1]][0]} to a validation {own} of {100 * float(cost[2]):g} %"
    name = metric.replace("_", " ")
    if metric in OF_CLIENTS:
        return f"test {own} in % of the {name}"
    return f"test {own} in % at the last point" if metric == "last" else f"test {name} in %"


Position = tuple[Values, Values]
NAMED = (*GROUPS.values(), "metric")


@dataclass(frozen=True)
class Standing:
    """Comparison of a cell with the best of its column.

    Attributes:
        p: p-value of the two-sided paired t-test over the common seeds, Holm-corrected over the column; None for the best cell and for
            fewer than two common seeds.
        seeds: number of seeds in the test; 0 without a test.
        best: True if no mean of the column is better.
        alike: True if the cell does not differ significantly from the best.
    """

    p: float | None = None
    seeds: int = 0
    best: bool = False
    alike: bool = False


@dataclass(frozen=True)
class Difference:
    """The difference of a cell from the row that the question names.

    Attributes:
        mean, half: mean over the common seeds and half-width of the paired 95 % t-interval; None for one seed.
        p: p-value of the paired test, Holm-corrected over the column; None for fewer than two common seeds.
        seeds: number of common seeds.
    """

    mean: float
    half: float | None
    p: float | None
    seeds: int

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < statistics.LEVEL

    def text(self, digits: int) -> str:
        """Return ``+1.2 ± 0.8, p 0.031``."""
        p = "" if self.p is None else ", p < 0.001" if self.p < 0.001 else f", p {self.p:.3f}"
        return f"{self.mean:+.{digits}f}" + ("" if self.half is None else f" ± {self.half:.{digits}f}") + p


@dataclass(frozen=True)
class Block:
    """The scores of one kind of model in a table.

    Attributes:
        scores: by (row, column), without missing runs.
        tests: for competing cells, in which every seed has a score.
        ranks: over the ``ranked`` columns, in which all rows compete; None for fewer than two rows or columns.
        differences: for competing cells, where the question names a row to compare with.
    """

    model: str
    scores: Mapping[Position, Score]
    tests: Mapping[Position, Standing]
    ranks: Ranks | None
    ranked: tuple[Values, ...] = ()
    differences: Mapping[Position, Difference] = field(default_factory=dict)


@dataclass(frozen=True)
class Compared:
    """Runs by row and column, with scores, tests and ranks.

    Attributes:
        folder: the folder of the runs.
        chosen: runs by row and column.
        digits: number of decimals.
        width: line length of ``str()``, in characters.
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
        """One block per kind of model."""
        return tuple(block(self.chosen, model) for model in self.question.model_of)

    @cached_property
    def missing(self) -> tuple[Position, ...]:
        """Combinations without a run."""
        return tuple((row, column) for row in self.chosen.rows for column in self.chosen.columns if (row, column) not in self.chosen.runs)

    @property
    def unit(self) -> str:
        """Quantity and unit of the scores, and the task unless it is the default one."""
        return heading([run.summary["metric"] for run in self.chosen.runs.values()], self.question.metric) + self.task

    @property
    def task(self) -> str:
        """The task of the runs, of which a table has one, see :func:`fgl_bench.results.scored.of_task`."""
        return of_task(next(iter(self.chosen.runs.values())).summary)


def block(chosen: Chosen, model: str) -> Block:
    """Compute scores, tests and ranks of one kind of model."""
    scores = {position: score(run, chosen.question.metric, model) for position, run in chosen.runs.items()}
    tests: dict[Position, Standing] = {}
    differences: dict[Position, Difference] = {}
    base = None if chosen.question.against is None else row_named(chosen, chosen.question.against)
    for column in chosen.columns:
        competing = {
            row: known for row in chosen.rows if (known := scores.get((row, column))) and known.mean is not None and known.complete
        }
        tests |= {(row, column): test for row, test in tested(competing).items()}
        if base in competing:
            differences |= {(row, column): each for row, each in differing(competing, base, chosen.question.test).items()}
    if base is not None or CLIENT in chosen.question.rows:  # clients do not compete
        return Block(model, scores, {}, None, differences=differences)
    rows = [row for row in chosen.rows if any((row, column) in tests for column in chosen.columns)]
    ranked = tuple(column for column in chosen.columns if all((row, column) in tests for row in rows))
    values = {label(row): [value_of(scores[row, column]) for column in ranked] for row in rows}
    graphs = [chosen.runs[rows[0], column].summary["dataset"] for column in ranked] if rows else []
    ranks = statistics.average_ranks(values, graphs)
    return Block(model, scores, tests, ranks, ranked)


def row_named(chosen: Chosen, name: str) -> Values:
    """Return the row of this name; raises UserError if there is none."""
    names = {label(row): row for row in chosen.rows}
    if name not in names:
        raise UserError(f"against={short(name)}: no such row{suggest(name, names)}")
    return names[name]


def differing(scores: Mapping[Values, Score], base: Values, test: str) -> dict[Values, Difference]:
    """Compare the cells of a column with that of ``base``, over the seeds that all of them have."""
    common = [seed for seed in scores[base].per_seed if all(seed in cell.per_seed for cell in scores.values())]
    by_seed = {label(row): [cell.per_seed[seed] or 0.0 for seed in common] for row, cell in scores.items()}
    adjusted = {each.name: each.adjusted for each in statistics.against(label(base), by_seed, test)} if len(common) > 1 else {}
    result = {}
    for row in scores:
        gaps = [own - other for own, other in zip(by_seed[label(row)], by_seed[label(base)], strict=True)]
        if row != base and gaps:
            stats = spread(gaps)
            result[row] = Difference(
                stats["mean"] or 0.0, stats["ci95"] if len(common) > 1 else None, adjusted.get(label(row)), len(common)
            )
    return result


def value_of(cell: Score) -> float:
    """Return the mean, signed so that larger is better."""
    assert cell.mean is not None
    return cell.better(cell.mean)


def tested(scores: Mapping[Values, Score]) -> dict[Values, Standing]:
    """Compare the cells of a column with the best one."""
    if not scores:
        return {}
    top = max(value_of(cell) for cell in scores.values())
    common = [seed for seed in next(iter(scores.values())).per_seed if all(seed in cell.per_seed for cell in scores.values())]
    by_seed = {label(row): [cell.better(cell.per_seed[seed] or 0.0) for seed in common] for row, cell in scores.items()}
    if len(common) < 2 or len(scores) < 2:
        return {row: Standing(best=value_of(cell) == top) for row, cell in scores.items()}
    compared = statistics.against(label(next(row for row, cell in scores.items() if value_of(cell) == top)), by_seed)
    adjusted = {each.name: each for each in compared}
    return {
        row: Standing(adjusted[label(row)].adjusted, len(common), value_of(cell) == top, not adjusted[label(row)].worse)
        if label(row) in adjusted
        else Standing(best=True)
        for row, cell in scores.items()
    }


def label(values: Sequence[str]) -> str:
    """Join values into one name."""
    return " ".join(values) or "all"


def column_label(keys: Sequence[str], values: Sequence[str]) -> str:
    """Return the heading of a column: names of choices, other keys as ``lr=0.1``."""
    return label([value if key in NAMED else f"{key.rpartition('.')[2]}={value}" for key, value in zip(keys, values, strict=True)])
