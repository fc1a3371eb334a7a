"""What a user's own table shows: means with intervals, the best of every column, paired tests against it, average ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fgl_bench.results import statistics
from fgl_bench.results.question import Question
from fgl_bench.results.runs import Chosen, Values
from fgl_bench.results.scores import Score, heading, score
from fgl_bench.results.statistics import Ranks

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
