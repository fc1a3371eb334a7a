"""Statistics on plain numbers: tests, ranks with intervals, agreement with published scores, fairness over clients.

``analysis.py`` applies them to stored cells. Larger scores are better in all functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.05
FEW = 5  # seeds; with fewer, a paired test detects only large differences
DRAWS = 2000  # of a bootstrap


@dataclass(frozen=True)
class Comparison:
    """Comparison of a method with the best one of its column, paired by seed.

    Attributes:
        difference: best minus this method, mean over the seeds.
        p: p-value of the two-sided paired t-test.
        adjusted: after Holm's correction for the comparisons of the column.
    """

    name: str
    difference: float
    p: float
    adjusted: float

    @property
    def worse(self) -> bool:
        return self.adjusted < LEVEL


@dataclass(frozen=True)
class Ranks:
    """Average ranks (1 is best) over the columns of a table.

    Attributes:
        ranks: by method, best first.
        intervals: 95 % bootstrap intervals by method, over graphs: a drawn graph brings all of its columns. Empty for one graph.
        columns: number of ranked columns.
        graphs: number of graphs that the columns are of.
    """

    ranks: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    columns: int
    graphs: int

    def texts(self) -> dict[str, str]:
        """Return the rank of every method with its interval."""
        shown = {name: "" if name not in self.intervals else " [{:.2f}, {:.2f}]".format(*self.intervals[name]) for name in self.ranks}
        return {name: f"{rank:.2f}{shown[name]}" for name, rank in self.ranks.items()}


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b of two rankings of the same methods."""

    tau: float
    p: float
    methods: int


def wide(halves: Sequence[float | None]) -> list[str]:
    """Return a warning if intervals exceed a third of the scale of 0 to 100 %; ``halves`` are half-widths in points."""
    count = sum(half is not None and 2 * half > 100 / 3 for half in halves)
    return [f"Intervals wider than a third of the scale (33 points): {count} of {len(halves)}; use more seeds."] * bool(count)


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values in the given order: running maximum of (m - i) p_(i), at most 1."""
    adjusted, reached = [0.0] * len(p), 0.0
    for position, index in enumerate(np.argsort(p, kind="stable")):
        reached = max(reached, (len(p) - position) * p[index])
        adjusted[index] = min(reached, 1.0)
    return adjusted


def paired_t(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the mean of a - b and its two-sided p-value: 1 if all pairs are equal, 0 if all differ equally, NaN for one pair."""
    from scipy.special import stdtr  # importing scipy.stats takes half a second

    difference = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    mean, count = float(difference.mean()), difference.size
    if count < 2:
        return mean, math.nan
    error = float(difference.std(ddof=1)) / math.sqrt(count)
    if error <= 1e-12 * max(1.0, abs(mean)):  # equal up to rounding
        return mean, 1.0 if abs(mean) <= 1e-12 else 0.0
    return mean, float(2 * stdtr(count - 1, -abs(mean) / error))


def wilcoxon(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the mean of a - b and the two-sided p-value of Wilcoxon's signed-rank test (exact for few seeds); as :func:`paired_t`."""
    from scipy import stats

    gaps = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    p = math.nan if gaps.size < 2 else float(stats.wilcoxon(gaps).pvalue) if gaps.any() else 1.0
    return float(gaps.mean()), p


TESTS: dict[str, Callable[[Sequence[float], Sequence[float]], tuple[float, float]]] = {
    "t": paired_t, "wilcoxon": wilcoxon,
}  # fmt: skip
"""Paired tests of two methods' scores by seed. With n seeds, the p-value of the second is at least 2 / 2^n."""


def against_best(scores: Mapping[str, Sequence[float]]) -> tuple[str, list[Comparison]]:
    """Return the method with the best mean, and the comparison of every other method with it.

    Args:
        scores: by method, one value per seed, with the same seeds in the same order.
    """
    best = max(scores, key=lambda name: float(np.mean(scores[name])))
    return best, against(best, scores)


def against(one: str, scores: Mapping[str, Sequence[float]], test: str = "t") -> list[Comparison]:
    """Compare every other method with ``one``, with Holm's correction over these comparisons; see :func:`against_best`."""
    others = [name for name in scores if name != one]
    tested = [TESTS[test](scores[one], scores[name]) for name in others]
    known = [i for i, (_, p) in enumerate(tested) if not math.isnan(p)]
    adjusted = dict(zip(known, holm([tested[i][1] for i in known]), strict=True))
    return [Comparison(name, *tested[i], adjusted.get(i, math.nan)) for i, name in enumerate(others)]


def average_ranks(scores: Mapping[str, Sequence[float]], graphs: Sequence[str]) -> Ranks | None:
    """Return average ranks over columns; equal scores share their mean rank. None for fewer than two methods or columns.

    Args:
        scores: by method, one value per column.
        graphs: the graph of each column.
    """
    names = list(scores)
    table = np.array([scores[name] for name in names], dtype=np.float64)  # [methods, columns]
    if table.ndim < 2 or min(table.shape) < 2:
        return None
    from scipy import stats

    ranks = stats.rankdata(-table, axis=0)
    order, different = np.argsort(ranks.mean(1), kind="stable"), sorted(set(graphs))
    intervals = {}
    if len(different) > 1:
        counts = np.random.default_rng(0).multinomial(len(different), [1 / len(different)] * len(different), DRAWS)  # [draws, graphs]
        weights = counts[:, [different.index(graph) for graph in graphs]]
        drawn = weights @ ranks.T / weights.sum(1, keepdims=True)
        intervals = {names[i]: tuple(np.percentile(drawn[:, i], [2.5, 97.5]).tolist()) for i in order}
    return Ranks({names[i]: float(ranks[i].mean()) for i in order}, intervals, table.shape[1], len(different))


def agreement(ours: Sequence[float], theirs: Sequence[float]) -> Agreement | None:
    """Measure how similarly two lists of scores rank the same methods; None for fewer than three methods or a constant list."""
    from scipy import stats

    if len(ours) < 3 or len(set(ours)) < 2 or len(set(theirs)) < 2:
        return None
    result = stats.kendalltau(ours, theirs)
    return Agreement(float(result.statistic), float(result.pvalue), len(ours))


def fairness(per_client: Sequence[Sequence[float | None]]) -> dict[str, float | None]:
    """Measure fairness over clients: means over seeds of the worst and best client, the lowest tenth and the standard deviation.

    Args:
        per_client: ``[S][C]`` scores; None for a client without test nodes.
    """
    seeds = [np.array([v for v in clients if v is not None], dtype=np.float64) for clients in per_client]
    seeds = [clients for clients in seeds if clients.size]
    measures: dict[str, Callable[[np.ndarray], float]] = {
        "worst": np.min,
        "tenth": lambda clients: np.quantile(clients, 0.1),
        "median": np.median,
        "best": np.max,
        "std": lambda clients: clients.std(ddof=1) if clients.size > 1 else 0.0,
    }
    return {name: float(np.mean([f(clients) for clients in seeds])) if seeds else None for name, f in measures.items()}


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the Pareto front of (cost, score), cheapest first."""

    def beaten(name: str) -> bool:
        cost, score = points[name]
        return any(c <= cost and s >= score and (c < cost or s > score) for other, (c, s) in points.items() if other != name)

    return sorted((name for name in points if not beaten(name)), key=lambda name: (points[name][0], -points[name][1], name))


def guarantee(spent: Mapping[str, float | None]) -> str:
    """Return the differential privacy of a client's updates in words, from ``privacy_spent`` of a summary."""
    epsilon, delta, count = spent["epsilon"], spent["delta"], spent["participations"]
    if epsilon is None:
        return "updates are clipped, and nothing is guaranteed"
    return f"differential privacy of a client's updates: epsilon {epsilon:.3g}, delta {delta:g}, for {count} rounds with the client"
