"""Findings from the cells: ranks, wins against local training, gains from tuning, costs, fairness, and when federation helps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from fgl_bench.leaderboard.board import LOCAL, REFERENCES, Board
from fgl_bench.leaderboard.protocol import BoardColumn
from fgl_bench.results.statistics import Comparison, Ranks, against, against_best, average_ranks, pareto

NAMES = {
    "label_skew": "label skew", "homophily": "homophily", "edge_cut": "edge cut", "train_nodes": "training nodes a client",
    "clients": "clients",
}  # fmt: skip
LEVEL = 0.95
PREDICTORS = ("label_skew", "homophily", "edge_cut", "train_nodes")
LEAST = len(PREDICTORS) + 4  # minimum number of columns; with fewer, a regression overfits


def ranks(board: Board, model: str) -> tuple[Ranks | None, list[BoardColumn]]:
    """Return average ranks over the columns in which all ranked entries have a score; None for fewer than two of either."""
    rows, columns = board.whole(model)
    means = board.means(model)
    return average_ranks({name: [means[column.key][name] for column in columns] for name in rows}), columns


def column_tests(board: Board, column: BoardColumn, model: str) -> tuple[str | None, set[str]]:
    """Return the best entry of a column and entries not significantly worse (paired tests, Holm-corrected in the column)."""
    scores = board.scores(column, model)
    if not scores:
        return None, set()
    best, others = against_best(scores)
    return best, {each.name for each in others if not each.worse and not math.isnan(each.p)}


def against_local(board: Board, model: str) -> dict[str, dict[str, Comparison]]:
    """Compare every entry with local training, by column key and entry: paired over the seeds, Holm-corrected in the column.

    ``difference`` is local minus the entry.
    """
    result = {}
    for column in board.columns:
        scores = board.scores(column, model)
        if LOCAL in scores and len(scores) > 1:
            result[column.key] = {each.name: each for each in against(LOCAL, scores)}
    return result


@dataclass(frozen=True)
class Tally:
    """Number of columns in which an entry is better and worse than local training, and of all columns."""

    better: int
    worse: int
    of: int

    def __str__(self) -> str:
        return f"{self.better}/{self.worse}/{self.of - self.better - self.worse}"


def tallies(board: Board, model: str) -> dict[str, dict[str, Tally]]:
    """Return tallies by entry and split."""
    tests = against_local(board, model)
    result: dict[str, dict[str, Tally]] = {}
    for name in board.entries:
        for split in dict.fromkeys(column.split for column in board.columns):
            each = [tests[c.key][name] for c in board.columns if c.split == split and c.key in tests and name in tests[c.key]]
            if each:
                better = sum(one.worse and one.difference < 0 for one in each)
                result.setdefault(name, {})[split] = Tally(better, sum(one.worse and one.difference > 0 for one in each), len(each))
    return result


@dataclass(frozen=True)
class Gain:
    """Gain of the best trial over the defaults, in validation points, over an entry's columns."""

    mean: float
    most: float
    columns: int
    unchanged: int  # columns in which the defaults are best


def gains(board: Board, model: str) -> dict[str, Gain]:
    """Return gains by tuned entry."""
    result = {}
    for name in board.entries:
        each = [r.gain(model) for r in board.records if r.entry == name and r.complete and r.planned > 1]
        known = [100 * gain for gain in each if gain is not None]
        if known:
            result[name] = Gain(mean(known), max(known), len(known), sum(gain == 0 for gain in known))
    return result


@dataclass(frozen=True)
class Cost:
    """Mean score in percent, megabytes and seconds per seed of an entry; ``frontier`` if no entry is cheaper and better."""

    score: float
    megabytes: float
    seconds: float
    frontier: bool


def costs(board: Board, model: str) -> tuple[dict[str, Cost], list[BoardColumn]]:
    """Return costs by entry, cheapest first, and the common columns."""
    rows, columns = board.whole(model)
    return costs_in(board, model, rows, columns), columns


def costs_in(board: Board, model: str, rows: Sequence[str], columns: Sequence[BoardColumn]) -> dict[str, Cost]:
    """Return :func:`costs` of given entries in given columns; all must have a score."""
    means = board.means(model)
    points, seconds = {}, {}
    for name in rows:
        winners = [winner for column in columns if (winner := board.winner(name, column, model)) is not None]
        sent = mean(winner.bytes["upload"] + winner.bytes["download"] for winner in winners) / 1e6
        points[name] = (sent, mean(means[column.key][name] for column in columns) * 100)
        seconds[name] = mean(winner.seconds / len(winner.scores) for winner in winners)
    front = set(pareto(points))
    order = sorted(points, key=lambda name: (points[name][0], -points[name][1]))
    return {name: Cost(points[name][1], points[name][0], seconds[name], name in front) for name in order}


def fairness(board: Board, model: str) -> tuple[dict[str, dict[str, float]], list[BoardColumn]]:
    """Return, by entry, worst, lowest tenth, median, best and standard deviation over clients in percent, means over common columns."""
    rows, columns = board.whole(model)
    result = {}
    for name in rows:
        each = [winner.fairness for column in columns if (winner := board.winner(name, column, model)) is not None]
        measures = {key: [one[key] for one in each] for key in ("worst", "tenth", "median", "best", "std")}
        result[name] = {key: 100 * mean(v for v in values if v is not None) for key, values in measures.items() if None not in values}
    return result, columns


@dataclass(frozen=True)
class Effect:
    """A property's coefficient: points of gain over local training per standard deviation."""

    coefficient: float
    half: float  # half-width of the 95 % interval


@dataclass(frozen=True)
class Fit:
    """A linear regression over columns.

    Attributes:
        r2, adjusted: R² of the fit. ``predicted`` is the R² of columns predicted from the others; at or below 0 the mean is as good.
    """

    columns: int
    effects: Mapping[str, Effect]
    r2: float
    adjusted: float
    predicted: float


def gains_over_local(board: Board, model: str, method: str | None) -> dict[str, float]:
    """Return a method's mean gain over local training in points, by column key; averaged over federated methods without ``method``."""
    result = {}
    for key, scores in board.means(model).items():
        names = [method] if method else [name for name in scores if name not in REFERENCES and name not in board.guests]
        values = [scores[name] for name in names if name in scores]
        if LOCAL in scores and values:
            result[key] = 100 * (mean(values) - scores[LOCAL])
    return result


def regression(board: Board, model: str, method: str | None) -> Fit | int:
    """Regress gains over local training on properties of the federations; returns the number of columns if there are too few."""
    gain = gains_over_local(board, model, method)
    measured = {record.column.key: record.properties for record in board.records if record.properties}
    keys = [key for key in gain if key in measured]
    if len(keys) < LEAST:
        return len(keys)
    values = np.array([[predictor(measured[key], name) for name in PREDICTORS] for key in keys])
    return fit(values, np.array([gain[key] for key in keys]), PREDICTORS)


def predictor(properties: Mapping[str, float], name: str) -> float:
    """Return a property; training nodes by their logarithm."""
    return math.log10(max(properties[name], 1.0)) if name == "train_nodes" else properties[name]


def fit(values: np.ndarray, target: np.ndarray, names: Sequence[str]) -> Fit:
    """Fit ``target [n]`` by least squares on standardized columns of ``values [n, k]``, without constant columns."""
    from scipy import stats

    varies = values.std(0) > 0
    scaled = (values[:, varies] - values[:, varies].mean(0)) / values[:, varies].std(0, ddof=1)
    design = np.column_stack([np.ones(len(target)), scaled])
    count, width = design.shape
    inverse = np.linalg.pinv(design.T @ design)
    coefficients = inverse @ design.T @ target
    left = target - design @ coefficients
    total, rest = float(((target - target.mean()) ** 2).sum()), float((left**2).sum())
    half = stats.t.ppf((1 + LEVEL) / 2, count - width) * np.sqrt(np.diag(inverse) * rest / (count - width))
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    out = left / np.maximum(1 - leverage, 1e-12)  # leave-one-out errors
    mean_out = (target - target.mean()) * count / (count - 1)
    chosen = [name for name, varied in zip(names, varies, strict=True) if varied]
    effects = {name: Effect(float(coefficients[i]), float(half[i])) for i, name in enumerate(chosen, 1)}
    r2 = 1 - rest / total if total else 0.0
    adjusted = 1 - (1 - r2) * (count - 1) / (count - width)
    return Fit(count, effects, r2, adjusted, 1 - float((out**2).sum() / (mean_out**2).sum()) if total else 0.0)


def titles(names: Sequence[str]) -> list[str]:
    return [NAMES[name] for name in names]
