"""Verdicts on printed cells by equivalence tests, with their floor and ceiling.

``results/settlements/RULE.md`` is the rule, registered before any verdict was computed; ``registered.csv`` names a row and a model of ours
for each printed row, and ``contradictions.csv`` the printed cells that are not tested. A frame of cells has a row per printed cell. Scores
are in percent, or in trips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit  # Student's quantile; scipy.stats takes half a second to import

from fgl_bench.papers.plan import Key, Stored, Table, look_up
from fgl_bench.papers.published import Printed, Published
from fgl_bench.results.scored import score_trained

MARGIN, TRIPS_MARGIN, LEVEL = 1.5, 0.2, 0.05  # points, a share of the printed trips, of each one-sided test
REPETITIONS = 200
RUNS = {"fedsa_gcl": 5, "dfed_sst": 5, "fedssa": 10, "fedaas": 10, "fedgta": 10}  # runs of a printed mean
FOLDS = ("fedaas",)  # papers whose runs have masks of their own
AUTHORS_MASKS = {("fedgta", "cora"), ("fedgta", "citeseer")}  # both sides have the same masks
TESTED = ("equivalent", "inconclusive", "different")
VERDICTS = (*TESTED, "under-specified", "contradictory", "not run")
Floats = NDArray[np.float64]
Score = Callable[[Mapping[str, Any], str, "float | None"], "Sequence[float | None] | None"]
"""Scores by seed of a stored cell for a kind of model and a target, in percent; None in it for a seed without a score."""


def read_registered(folder: Path) -> pd.DataFrame:
    """Read ``registered.csv`` of a folder of settlements; all columns are strings. Empty if there is none."""
    path = folder / "registered.csv"
    heads = ("paper", "table", "method", "where", "datasets", "row", "row_by", "row_source", "model", "model_by", "open")
    return pd.read_csv(path, dtype=str, keep_default_na=False) if path.is_file() else pd.DataFrame(columns=list(heads), dtype=str)


def read_contradictions(folder: Path) -> set[tuple[str, ...]]:
    """Return paper, table, method, where and column of the printed cells that contradict others of their paper."""
    path = folder / "contradictions.csv"
    if not path.is_file():
        return set()
    listed = pd.read_csv(path, dtype=str, keep_default_na=False)
    return set(listed[["paper", "table", "method", "where", "column"]].itertuples(index=False, name=None))


def registered_cells(paper: str, tables: Iterable[Table], registered: pd.DataFrame) -> dict[Key, dict[str, str]]:
    """Return the cells of a paper's tables that published ones are compared with, each with its line of ``registered.csv``."""
    by_key, found = {table.key: table for table in tables}, {}
    for line in registered.to_dict("records"):
        entry = {str(name): str(value) for name, value in line.items()}
        for column in by_key[entry["table"]].columns if entry["paper"] == paper and entry["table"] in by_key else ():
            if not entry["datasets"] or column.dataset in entry["datasets"].split():
                found[entry["table"], entry["row"], column.key] = entry
    return found


def by_seed(table: Table) -> Score:
    """Return the scores by seed of a table's measure: trips of None for a seed that misses the target, else percent."""

    def trips(cell: Mapping[str, Any], model: str, target: float | None) -> Sequence[float | None] | None:
        counts = cell["client_trips"]["to_target"].get(f"{target:g}", {}).get(model) if target is not None else None
        return None if counts is None else counts["per_seed"]

    def percent(cell: Mapping[str, Any], model: str, target: float | None) -> Sequence[float | None] | None:
        if model == "trained" and score_trained(cell) == "never":
            return None
        tests = cell["test"] if table.measure == "accuracy" else cell.get("metrics", {}).get(table.measure)
        return None if tests is None else [None if value is None else 100 * value for value in tests[model]["per_seed"]]

    return trips if table.measure == "trips" else percent


def cells_of(
    paper: str,
    tables: Iterable[Table],
    stored: Stored,
    published: Printed,
    registered: pd.DataFrame,
    contradictions: set[tuple[str, ...]] = frozenset(),  # type: ignore[assignment]
    score: Callable[[Table], Score] = by_seed,
) -> pd.DataFrame:
    """Return the printed cells of a paper with our scores on the registered row and model.

    Args:
        score: returns the function that reads a table's scores; another one than :func:`by_seed` is a reading tried after the fact.

    Returns:
        A frame; ``seeds`` is 0 where the run is not stored, ``ours`` NaN where no seed has a score; variances are those of one run.
    """
    tables, records = list(tables), []
    places = {(table.key, row.key, column.key): (table, row, column) for table in tables for row in table.rows for column in table.columns}
    for key, entry in registered_cells(paper, tables, registered).items():
        table, row, column = places[key]
        if (their := look_up(published, table, row, column)) is None:
            continue
        cell, trips = stored.get(key), table.measure == "trips"
        scores = score(table)(cell, entry["model"], published.targets(table.key).get(column.dataset)) if cell else None
        place = (paper, table.key, entry["method"], entry["where"], column.key)
        records.append(
            {
                **dict(zip(("paper", "table", "method", "where", "column"), place, strict=True)),
                **{"dataset": column.dataset, "row": row.key, "title": row.title, "model": entry["model"], "open": entry["open"]},
                **{"contradictory": place in contradictions, "trips": trips},
                **_printed(their, paper),
                **_ours(cell, scores, paper, column.dataset, trips),
            }
        )
    return pd.DataFrame(records)


def _printed(their: Published, paper: str) -> dict[str, Any]:
    runs, spread = RUNS.get(paper, 5) if their.reached is None else their.reached, float(their.spread or "nan")
    return {
        "printed": float(their.mean),
        "printed_text": their.text,
        "printed_variance": printed_variance(spread, their.kind, runs),
        "printed_runs": runs,
    }


def printed_variance(spread: float, kind: str, runs: int) -> float:
    """Return the variance of one printed run.

    Args:
        kind: ``ci95`` for the half-width of a t-interval, ``var`` for a variance; all else is a standard deviation.
    """
    if kind == "var":
        return spread
    return (spread * math.sqrt(runs) / float(stdtrit(runs - 1, 0.975))) ** 2 if kind == "ci95" and runs > 1 else spread**2


def _ours(cell: Mapping[str, Any] | None, scores: Sequence[float | None] | None, paper: str, dataset: str, trips: bool) -> dict[str, Any]:
    if cell is None or scores is None:
        return {
            "ours": math.nan,
            "variance": math.nan,
            "runs": 0,
            "seeds": 0,
            "scores": (),
            "missed": False,
            "sides": 0,
            "test_nodes": math.nan,
        }
    whole = [value for value in scores if value is not None]
    mean, variance = (float(np.mean(whole)) if whole else math.nan, float(np.var(whole, ddof=1)) if len(whole) > 1 else math.nan)
    fixed = "masks" not in cell["config"]["split"]["per_seed"]
    sides = 0 if trips or (paper, dataset) in AUTHORS_MASKS else int(paper not in FOLDS) + int(fixed)
    if not trips and len(whole) < len(scores):
        variance = math.nan
    return {
        "ours": mean,
        "variance": variance,
        "runs": len(whole),
        "seeds": len(scores),
        "scores": tuple(whole),
        "missed": trips and not whole,
        "sides": sides,
        "test_nodes": test_nodes(cell),
    }


def test_nodes(cell: Mapping[str, Any]) -> float:
    """Return the number of test nodes of a stored cell, by its ratios."""
    ratios = cell["config"]["split"].get("ratios") or cell["config"]["dataset"]["ratios"]
    return float(cell["graph"]["nodes"] * ratios[2])


# ---- the variance between draws


def drawn_runs(paper: str, tables: Iterable[Table], draws: Stored, stored: Stored) -> pd.DataFrame:
    """Return the variance between draws of the masks of each measured run and kind of model; a run in several tables counts once."""
    records, by_key = [], {table.key: by_seed(table) for table in tables if table.measure != "trips"}
    once = {cell["config_hash"]: (key, cell) for key, cell in list(draws.items())[::-1] if key[0] in by_key}
    for (table, row, column), cell in list(once.values())[::-1]:
        score, key = by_key[table], (table, row, column)
        for model in cell["test"]:
            values = [value for value in score(cell, model, None) or () if value is not None]
            fixed = [value for value in (score(stored[key], model, None) if key in stored else None) or () if value is not None]
            within = float(np.var(fixed, ddof=1)) if len(fixed) > 1 else 0.0
            place = {"paper": paper, "table": table, "row": row, "column": column, "dataset": str(cell["dataset"]), "model": model}
            between = {"between": max(0.0, float(np.var(values, ddof=1)) - within), "within": within}
            records.append({**place, **between, "draws": len(values), "values": tuple(values), "test_nodes": test_nodes(cell)})
    return pd.DataFrame(records, columns=[*LEVELS[0], "dataset", "between", "within", "draws", "values", "test_nodes"])


LEVELS = (("paper", "table", "row", "column", "model"), ("paper", "dataset", "model"), ("dataset", "model"), ("model",))


def with_draws(cells: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """Add the variance between draws, its degrees of freedom and the labels of the measured runs that gave it."""
    near = [nearest(drawn, cell, LEVELS) for cell in cells.to_dict("records")]
    between = [value if sides else 0.0 for (value, _), sides in zip(near, cells["sides"], strict=True)]
    freedom = [int(runs["draws"].median()) - 1 if len(runs) else 1 for _, runs in near]
    sources = pd.Series([tuple(runs.index) for _, runs in near], index=cells.index, dtype=object)
    return cells.assign(between=between, draw_freedom=freedom, drawn_by=sources)


def nearest(drawn: pd.DataFrame, cell: Mapping[Any, Any], levels: Sequence[Sequence[str]]) -> tuple[float, pd.DataFrame]:
    """Return the median variance between draws of the measured runs on the first level that has any, and these runs; NaN without any.

    The last level pools data sets; there a variance is scaled by the numbers of test nodes.
    """
    for keys in levels:
        near = drawn[np.logical_and.reduce([(drawn[key] == cell[key]).to_numpy() for key in keys])]
        if len(near):
            scale = near["test_nodes"] / cell["test_nodes"] if keys == levels[-1] else 1.0
            return float((near["between"] * scale).median()), near
    return math.nan, drawn.iloc[:0]


# ---- the test


def intervals(difference: Floats, variances: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of two one-sided tests, 90 % at level 0.05, with Welch's and Satterthwaite's degrees of freedom.

    Args:
        difference: [cells].
        variances, freedom: [cells, parts] variances of independent parts of the difference and their degrees of freedom.
    """
    total = variances.sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(variances > 0, variances**2 / freedom, np.where(np.isnan(variances), np.nan, 0.0)).sum(1)
        half = np.where(total == 0, 0.0, stdtrit(total**2 / parts, 1 - LEVEL) * np.sqrt(total))
    return difference - half, difference + half


def labels(low: Floats, high: Floats, margin: Floats) -> NDArray[np.str_]:
    """Return ``equivalent``, ``different`` or ``inconclusive`` for each interval; the last one for NaN."""
    inside, outside = (low > -margin) & (high < margin), (low > margin) | (high < -margin)
    return np.where(inside, "equivalent", np.where(outside, "different", "inconclusive"))


TEST_OURS = ("ours", "variance", "runs", "sides", "between", "draw_freedom", "missed", "trips")
TEST_THEIRS = ("printed", "printed_variance", "printed_runs")
Side = Mapping[str, NDArray[Any]]


def side(cells: pd.DataFrame, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return columns of a frame as arrays [cells]."""
    return {name: cells[name].to_numpy() for name in names}


def at(columns: Side, index: NDArray[Any]) -> Side:
    """Return the cells of an index or a mask."""
    return {name: values[index] for name, values in columns.items()}


def compared(ours: Side, theirs: Side) -> tuple[Floats, Floats, NDArray[np.str_]]:
    """Test our columns :data:`TEST_OURS` against printed ones :data:`TEST_THEIRS`; returns low, high and labels [cells]."""
    runs, their_runs = ours["runs"].astype(float), theirs["printed_runs"].astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        seeds, printed = ours["variance"] / runs, np.where(their_runs > 1, theirs["printed_variance"] / their_runs, np.nan)
    variances = np.stack([seeds, printed, ours["sides"] * ours["between"]], 1)
    freedom = np.stack([np.maximum(runs - 1, 1), np.maximum(their_runs - 1, 1), ours["draw_freedom"]], 1)
    margin = np.where(ours["trips"], TRIPS_MARGIN * theirs["printed"], MARGIN)
    low, high = intervals(ours["ours"] - theirs["printed"], variances, freedom)
    return low, high, np.where(ours["missed"] & (their_runs > 1), "different", labels(low, high, margin))


def verdicts(cells: pd.DataFrame) -> pd.DataFrame:
    """Add ``difference``, ``low``, ``high`` and ``verdict``, one of :data:`VERDICTS`, to the cells of :func:`with_draws`."""
    low, high, found = compared(side(cells, TEST_OURS), side(cells, TEST_THEIRS))
    found = np.where((found == "different") & (cells["open"] != ""), "under-specified", found)
    found = np.where(cells["contradictory"], "contradictory", np.where(cells["seeds"] == 0, "not run", found))
    return cells.assign(difference=cells["ours"] - cells["printed"], low=low, high=high, verdict=found)


def tested(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that were tested."""
    return cells[~cells["contradictory"] & (cells["seeds"] > 0)]


# ---- floor and ceiling


def floor(cells: pd.DataFrame, repetitions: int = REPETITIONS) -> pd.DataFrame:
    """Test the cells with the printed rows of each table permuted; a permutation holds for all columns of its table.

    Returns:
        A frame of counts with a row per paper and repetition and a column per label of :data:`TESTED`.
    """
    generator, found = np.random.default_rng(0), []
    for (paper, _), table in tested(cells).groupby(["paper", "table"], sort=False):
        ours, theirs, place = side(table, TEST_OURS), side(table, TEST_THEIRS), (table["method"] + " " + table["where"]).to_numpy()
        rows, position = list(dict.fromkeys(place)), {key: i for i, key in enumerate(zip(place, table["column"], strict=True))}
        for repetition in range(repetitions):
            source = dict(zip(rows, generator.permutation(rows), strict=True))
            known = np.array([position.get((source[row], column), -1) for row, column in position])
            _, _, label = compared(at(ours, known >= 0), at(theirs, known[known >= 0]))
            found.append((paper, repetition, *((label == each).sum() for each in TESTED)))
    return _counts(found)


def ceiling(cells: pd.DataFrame, drawn: pd.DataFrame, repetitions: int = REPETITIONS) -> pd.DataFrame:
    """Test the cells with our own method on another draw in place of the printed value; returns counts as :func:`floor` does."""
    generator, cells = np.random.default_rng(0), tested(cells)
    cells = cells[(cells["runs"] > 1) & cells["variance"].notna()]
    moves = np.array([_redrawn(cell, drawn, generator, repetitions) for cell in cells.to_dict("records")])
    ours, papers, found = side(cells, TEST_OURS), cells["paper"].to_numpy(), []
    own = {"printed_variance": ours["variance"], "printed_runs": ours["runs"]}
    for repetition in range(repetitions):
        _, _, label = compared(ours, {**own, "printed": ours["ours"] - moves[:, repetition]})
        found += [(paper, repetition, *((label[papers == paper] == each).sum() for each in TESTED)) for paper in dict.fromkeys(papers)]
    return _counts(found)


def _counts(found: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(found, columns=["paper", "repetition", *TESTED]).groupby(["paper", "repetition"]).sum()


def _redrawn(cell: Mapping[Any, Any], drawn: pd.DataFrame, generator: np.random.Generator, repetitions: int) -> Floats:
    """Return differences [repetitions] of a cell's run on two draws, or of two resamples of its seeds if its masks do not count."""
    if not (cell["sides"] and cell["drawn_by"]):
        seeds = np.array(cell["scores"])
        one, other = (generator.choice(seeds, (repetitions, seeds.size)).mean(1) for _ in range(2))
        return one - other
    result, chosen = np.zeros(repetitions), generator.choice(np.array(cell["drawn_by"]), repetitions)
    for label in dict.fromkeys(chosen):
        values, between, here = np.array(drawn.at[label, "values"]), drawn.at[label, "between"], chosen == label
        first = generator.integers(0, values.size, here.sum())
        second = (first + generator.integers(1, values.size, here.sum())) % values.size
        result[here] = (values[first] - values[second]) * (math.sqrt(cell["between"] / between) if between else 0.0)
    return result


def shares(counts: pd.DataFrame, label: str) -> Floats:
    """Return mean, 2.5 % and 97.5 % quantile of a label's share over the repetitions of :func:`floor` or :func:`ceiling`, in percent."""
    total = counts.groupby("repetition").sum()
    share = 100 * total[label] / total.sum(axis=1)
    return np.array([share.mean(), *share.quantile([0.025, 0.975])])
