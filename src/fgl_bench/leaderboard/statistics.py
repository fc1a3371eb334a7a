"""Statistics of the leaderboard's cells.

The estimand is the mean score over masks, partitions and initializations of *this* data set, for the configuration that was tuned once. Two
tests stand side by side: the paired t-test over the seeds, which is valid for that, and Nadeau and Bengio's (Machine Learning 52,
2003), whose variance also holds training sets that overlap; it asks for another sample of the same size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fgl_bench.leaderboard.board import Board
from fgl_bench.leaderboard.protocol import BoardColumn
from fgl_bench.leaderboard.record import Record, Trial, choose
from fgl_bench.results.statistics import holm, pareto
from fgl_bench.utils.seeding import generator

LEVEL = 0.05
MARGIN = 0.01  # two means are equivalent if they differ by less than a point
DRAWS = 2000  # of the bootstrap


@dataclass(frozen=True)
class Difference:
    """The mean of a paired difference, and the p-values of three tests.

    Attributes:
        plain: paired t-test.
        corrected: Nadeau and Bengio's corrected resampled t-test.
        equivalence: two one-sided paired t-tests against :data:`MARGIN`.
    """

    mean: float
    plain: float
    corrected: float
    equivalence: float


def difference(one: np.ndarray, other: np.ndarray, ratio: float, margin: float = MARGIN) -> Difference:
    """Test ``one - other``, paired by seed; p-values of equal differences are 0 or 1.

    Args:
        ratio: test examples per training example (:attr:`Protocol.ratio`).
    """
    from scipy import stats

    gaps = np.asarray(one) - np.asarray(other)
    count, mean = gaps.size, float(gaps.mean())
    variance = float(gaps.var(ddof=1)) if np.ptp(gaps) > 1e-12 else 0.0

    def p(distance: float, spread: float, sides: int) -> float:
        if spread == 0:
            return float(distance <= 1e-12)
        return float(sides * stats.t.sf(distance / math.sqrt(spread), count - 1))

    plain, corrected = p(abs(mean), variance / count, 2), p(abs(mean), variance * (1 / count + ratio), 2)
    return Difference(mean, min(plain, 1), min(corrected, 1), p(margin - abs(mean), variance / count, 1))


def against(board: Board, method: str, kind: str = "primary") -> pd.DataFrame:
    """Compare every entry with ``method`` on its own backbone: a row per entry and column, p-values with Holm's correction in a column.

    Columns: entry, column, base, mean (entry minus base), plain, corrected, equivalence.
    """
    rows = []
    for column in board.columns:
        scores = board.scores(column.key, kind)
        pairs = [(name, board.base(name, method)) for name in scores]
        pairs = [(name, base) for name, base in pairs if base in scores and base != name and board.entries[name].algorithm != method]
        tests = [difference(scores[name], scores[base], board.protocol.ratio) for name, base in pairs]
        adjusted = zip(holm([test.plain for test in tests]), holm([test.corrected for test in tests]), strict=True)
        rows += [
            {"entry": name, "column": column.key, "base": base, **vars(test), "plain": plain, "corrected": corrected}
            for (name, base), test, (plain, corrected) in zip(pairs, tests, adjusted, strict=True)
        ]
    return pd.DataFrame(rows, columns=["entry", "column", "base", "mean", "plain", "corrected", "equivalence"])


def tally(tests: pd.DataFrame, p: str) -> Mapping[str, tuple[int, int, int]]:
    """Return by entry the columns in which it is significantly better, worse, and all of them."""
    return {
        str(name): (int(((each["mean"] > 0) & (each[p] < LEVEL)).sum()), int(((each["mean"] < 0) & (each[p] < LEVEL)).sum()), len(each))
        for name, each in tests.groupby("entry", sort=False)
    }


def weights(columns: Sequence[BoardColumn]) -> np.ndarray:
    """Return the weights of columns: all columns of a graph together weigh as much as those of another graph."""
    graphs = [column.graph for column in columns]
    each = np.array([1 / graphs.count(graph) for graph in graphs])
    return each / each.sum()


def ranking(board: Board, kind: str = "primary", draws: int = DRAWS) -> tuple[pd.DataFrame | None, list[BoardColumn]]:
    """Return rank, win rate and points below the best by entry, with 95 % bootstrap intervals, and the columns that they are over.

    A draw of the bootstrap takes as many graphs as there are, with replacement, and in every column as many seeds, the same for all
    entries. The win rate is the share of (other entry, column) pairs in which the entry's mean is higher. None for fewer than two entries.
    """
    names, columns = board.whole(kind)
    if len(names) < 2 or not columns:
        return None, columns
    by_column = [board.scores(column.key, kind) for column in columns]
    scores = np.array([[each[name] for each in by_column] for name in names])  # [entries, columns, seeds]
    points, rng = measures(scores.mean(2), weights(columns)), generator(0, "leaderboard", "bootstrap")
    graphs = list(dict.fromkeys(column.graph for column in columns))
    member = np.array([graphs.index(column.graph) for column in columns])
    drawn = []
    for _ in range(draws):
        seeds = rng.integers(scores.shape[2], size=scores.shape[1:])
        counts = np.bincount(rng.integers(len(graphs), size=len(graphs)), minlength=len(graphs))
        weight = weights(columns) * counts[member]
        drawn.append(measures(np.take_along_axis(scores, seeds[None], 2).mean(2), weight / weight.sum()))
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    table: dict[str, np.ndarray] = {}
    for i, measure in enumerate(("rank", "wins", "points")):
        table |= {measure: points[:, i], f"{measure}_low": low[:, i], f"{measure}_high": high[:, i]}
    return pd.DataFrame(table, index=names).sort_values("rank", kind="stable"), columns


def measures(means: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return rank, win rate and points below the best ``[entries, 3]`` from ``means [entries, columns]`` and weights of columns."""
    from scipy import stats

    ranks = stats.rankdata(-means, axis=0)
    wins = (len(means) - ranks) / (len(means) - 1)  # ties count half
    return np.stack([each @ weight for each in (ranks, wins, 100 * (means.max(0) - means))], 1)


def expected_best(bounds: Sequence[float], trials: int) -> float:
    """Return the expected maximum of ``trials`` of ``bounds``, drawn without replacement."""
    ordered, total = sorted(bounds), math.comb(len(bounds), trials)
    return sum(bound * math.comb(i, trials - 1) for i, bound in enumerate(ordered)) / total


def edges(record: Record) -> list[str]:
    """Return the numeric keys of which the winner has the smallest or largest tried value, of at least three."""
    best, flagged = record.best(), []
    same = [trial.values for trial in record.trials if best and trial.values.get("optimizer") == best.trial.values.get("optimizer")]
    for key, value in best.trial.values.items() if best else ():
        tried = {values[key] for values in same}
        if len(tried) > 2 and all(type(each) in (int, float) for each in tried) and value in (min(tried), max(tried)):
            flagged.append(key)
    return flagged


def tuning(board: Board) -> pd.DataFrame:
    """Return by entry: test points gained over the default with a 95 % t-interval, expected validation of some trials, and flags.

    Columns: columns, gain, half, ``best_of_N`` (validation points over one trial), edge (share of cells whose winner has an edge's
    learning rate).
    """
    from scipy import stats

    rows = {}
    for name in board.ranked(list(board.entries)):
        cells = [record for record in board.records if record.entry == name and record.complete and record.tuned and record.default]
        gains = np.array([100 * (primary(record.tuned).mean() - primary(record.default).mean()) for record in cells])
        if not len(gains):
            continue
        half = stats.t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        bounds = [[bound for trial in record.trials[: record.planned] if (bound := best_bound(trial)) is not None] for record in cells]
        row = {"columns": len(gains), "gain": gains.mean(), "half": half}
        for trials in (2, 3, 6):
            known = [100 * (expected_best(each, trials) - expected_best(each, 1)) for each in bounds if len(each) >= trials]
            row[f"best_of_{trials}"] = np.mean(known) if known else math.nan
        rows[name] = row | {"edge": np.mean(["lr" in edges(record) for record in cells])}
    return pd.DataFrame.from_dict(rows, orient="index")


def primary(scored: Any) -> np.ndarray:
    """Return the primary scores ``[S]``, NaN where a seed diverged."""
    return np.array(scored.scores[scored.model], dtype=np.float64)


def best_bound(trial: Trial) -> float | None:
    """Return the higher lower bound of the two kinds of model; None without scores."""
    choice = choose([trial])
    return None if choice is None else trial.lower(choice.model)


def costs(board: Board) -> tuple[pd.DataFrame, list[BoardColumn]]:
    """Return costs per seed by entry, the best score first, over the common columns, graphs alike.

    Columns: score, megabytes, time (virtual), steps (local), seconds, equal_time (score at the shortest total time of a ranked entry),
    and ``front`` (no other entry has a higher score for less or equal time).
    """
    names, columns = board.whole()
    rows: dict[str, dict[str, float]] = {name: {} for name in names}
    for column, weight in zip(columns, weights(columns) if columns else (), strict=True):
        cells = board.tuned(names, column.key)
        shortest = min(scored.time for scored in cells.values())
        for name, scored in cells.items():
            row = {
                "score": 100 * float(primary(scored).mean()),
                "megabytes": (scored.bytes["upload"] + scored.bytes["download"]) / 1e6,
                "time": scored.time,
                "steps": scored.trips * scored.local_epochs,
                "seconds": scored.seconds / len(board.protocol.test_seeds),
                "equal_time": 100 * at_time(scored.curve, shortest),
            }
            rows[name] = {key: rows[name].get(key, 0.0) + weight * value for key, value in row.items()}
    table = pd.DataFrame.from_dict(rows, orient="index")
    if len(table) and columns:
        front = set(pareto({str(name): (row["time"], row["score"]) for name, row in table.iterrows()}))
        table["front"] = [name in front for name in table.index]
        table = table.sort_values("score", ascending=False, kind="stable")
    return table, columns


def at_time(curve: Mapping[str, Sequence[float]], time: float) -> float:
    """Return the test score at a virtual time, between the points of a curve."""
    return float(np.interp(time, curve["time"], curve["test"])) if curve["time"] else math.nan


def fairness(board: Board) -> tuple[pd.DataFrame, list[BoardColumn]]:
    """Return scores over the clients in percent by entry, means over the common columns, the best worst client first."""
    names, columns = board.whole()
    tables = [pd.DataFrame({name: scored.fairness for name, scored in board.tuned(names, column.key).items()}).T for column in columns]
    if not tables:
        return pd.DataFrame(), columns
    table = 100 * pd.concat(tables).astype(np.float64).groupby(level=0, sort=False).mean()
    return table.sort_values("worst", ascending=False, kind="stable"), columns


def best_of(board: Board, column: str, kind: str = "primary") -> tuple[str | None, dict[str, float]]:
    """Return the best ranked entry of a column, and the p-values (paired t-test, Holm) of the other ranked entries."""
    scores = {name: each for name, each in board.scores(column, kind).items() if not board.entries[name].reference}
    if not scores:
        return None, {}
    best = max(scores, key=lambda name: scores[name].mean())
    others = [name for name in scores if name != best]
    tests = [difference(scores[best], scores[name], board.protocol.ratio) for name in others]
    return best, dict(zip(others, holm([test.plain for test in tests]), strict=True))


def equivalent(board: Board, kind: str = "primary") -> Iterator[tuple[str, int, int]]:
    """Yield ranked entries, in how many columns they are equivalent to the best one (TOST, one point, 5 %), and of how many."""
    counts: dict[str, list[int]] = {}
    for column in board.columns:
        best, others = best_of(board, column.key, kind)
        scores = board.scores(column.key, kind)
        for name in others:
            test = difference(scores[str(best)], scores[name], board.protocol.ratio)
            counts.setdefault(name, []).append(test.mean < MARGIN and test.equivalence < LEVEL)
        if best is not None:
            counts.setdefault(best, []).append(True)
    yield from ((name, sum(each), len(each)) for name, each in counts.items())
