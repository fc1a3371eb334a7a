"""Compares every published cell with our runs: it agrees, or has a reason for the difference.

``results/settlements/<paper>.yaml`` assigns each published row a row and model of ours: the choice of
:mod:`fgl_bench.papers.matched_rows`, or another one with the reason ``why``. Findings follow from the stored runs; a reason is written by
hand only if no run of ours is near the published number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml
from scipy.special import stdtrit  # Student's quantile; scipy.stats takes half a second to import

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.analysis import CellScore, judged, of_accuracy, scorer
from fgl_bench.papers.plan import Column, Paper, Row, Stored, Table, look_up
from fgl_bench.papers.published import Printed, Published

NEAR = 1.5  # points
AGREES, OTHER_MODEL, SETTING, NOT_RUN, OPEN = "agrees", "other model", "another setting", "not run", "open"
LAST, DRAW = "last round", "another draw"
TYPED = {"contradiction": "printed numbers contradict each other", "not reproducible": "not reproducible"}
SETTLED = (AGREES, OTHER_MODEL, SETTING, LAST, DRAW, *TYPED)


@dataclass(frozen=True)
class Difference:
    """The reason why columns of a published row are not reproduced.

    Attributes:
        columns: datasets or column keys; empty for all.
        tables: keys of the affected tables; empty for all tables of the row.
        finding: a key of :data:`TYPED`.
        reason: one sentence, with the arithmetic or the attempts.
    """

    finding: str
    reason: str
    columns: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settlement:
    """The row and model of ours that a published row is compared with.

    Attributes:
        printed: the method's name in the paper's csv.
        model: ``received`` or ``trained``.
        row: key of our row; empty for the first row of the table that matches the published cell.
        tables: keys of the affected tables; empty for all.
        why: reason if the row was not chosen by rule: the authors' code, or the paper's text.
    """

    printed: str
    model: str
    row: str = ""
    tables: tuple[str, ...] = ()
    differs: tuple[Difference, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Settled:
    """The finding on one published cell.

    Attributes:
        finding: one of :data:`SETTLED`, ``not run``, or ``open`` (run, different from the paper, no known reason).
        shown_by: title, model and score of the agreeing run, the range of the draws, or all attempts.
        model: our model.
        dataset: dataset of the column.
    """

    table: str
    row: str
    column: str
    printed: str
    ours: str
    finding: str
    shown_by: str = ""
    model: str = ""
    reason: str = ""
    dataset: str = ""


def read_settlements(path: Path) -> tuple[Settlement, ...]:
    """Read the settlements of a paper; empty if the file does not exist."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else []
    return tuple(
        Settlement(**{**in_tuples(entry), "differs": tuple(Difference(**in_tuples(each)) for each in entry.get("differs", ()))})
        for entry in entries
    )


def in_tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry with lists as tuples of strings, and strings on one line."""
    return {key: tuple(map(str, value)) if isinstance(value, list) else " ".join(str(value).split()) for key, value in entry.items()}


def settle(
    paper: Paper,
    table: Table,
    stored: Stored,
    published: Printed,
    settlements: Sequence[Settlement],
    draws: Stored = MappingProxyType({}),
) -> list[Settled]:
    """Return the finding on every published cell of a table that matches a row of ours.

    A cell agrees if our score for the row and model of its settlement is within 1.5 points of the published one or both 95 % intervals
    overlap (trips: the intervals only). Otherwise it is explained by, in this order: another row or model for the same cell within 1.5
    points, the score of the last round, another one with overlapping interval, or the draws of the masks.

    Args:
        draws: runs over many draws of the masks.
    """
    scored = scorer(table.measure)
    if scored is None:
        return []
    target, found = published.targets(table.key), []
    for column in table.columns:
        by_method: dict[str, list[Row]] = {}
        for row in table.rows:
            if (their := look_up(published, table, row, column)) is not None:
                by_method.setdefault(str(their.where), []).append(row)
        for rows in by_method.values():
            named = settlement_of(settlements, table, rows)
            named_row, named_model = (named.row or rows[0].key, named.model) if named else (rows[0].key, MODELS[0])
            rows = [*(row for row in rows if row.key == named_row), *(row for row in rows if row.key != named_row)]
            models = [named_model, *(model for model in MODELS if model != named_model)]
            scores: dict[tuple[Row, str], CellScore] = {}
            for row in rows:
                if (cell := stored.get((table.key, row.key, column.key))) is None:
                    continue
                for model in models:
                    if (score := scored(cell, model, target.get(column.dataset))) is not None:
                        scores[row, model] = score
            their = look_up(published, table, rows[0], column)
            assert their is not None
            near = 0.0 if table.measure == "trips" else NEAR
            close = [candidate for candidate, score in scores.items() if agrees(score, their, paper, near)]
            last = _last_round(table, column, rows, models[0], stored, their, paper)
            # Overlapping intervals only explain a cell without a near score, including the last round.
            near_ones = [
                candidate for candidate in close if candidate == (rows[0], models[0]) or distance(scores[candidate], their) <= near
            ]
            close = near_ones if near_ones or (last and last[1]) else close
            drawn = draws.get((table.key, rows[0].key, column.key))
            score = scored(drawn, models[0], target.get(column.dataset)) if drawn else None
            spread = None if score is None or table.measure == "trips" else single_draw(score.per_seed)
            found.append(_settled(table, column, their, (rows[0], models[0]), scores, close, named, last[0] if last else "", spread))
    return found


def _last_round(
    table: Table, column: Column, rows: Sequence[Row], model: str, stored: Stored, their: Published, paper: Paper
) -> tuple[str, bool] | None:
    """Return title, model and score of a row that agrees in its last round, preferably a near one, and True if it is near."""
    agreeing = []
    for row in rows if table.measure == "accuracy" else ():
        cell = stored.get((table.key, row.key, column.key))
        last = cell["test"][model].get("last") if cell else None
        score = of_accuracy({"test": {model: last}}, model, None) if last and "per_seed" in last else None
        if score is not None and agrees(score, their, paper, NEAR):
            agreeing.append((f"{row.title}, {model}, last round: {score.mean:.1f}", distance(score, their) <= NEAR))
    return next((each for each in agreeing if each[1]), agreeing[0] if agreeing else None)


def settlement_of(settlements: Sequence[Settlement], table: Table, rows: Sequence[Row]) -> Settlement | None:
    """Return the settlement of the published cell that ``rows`` match."""
    keys, method = {"", *(row.key for row in rows)}, rows[0].published
    of_table = (each for each in settlements if not each.tables or table.key in each.tables)
    return next((each for each in of_table if each.printed == method and each.row in keys), None)


def alternatives(table: Table, settlements: Sequence[Settlement]) -> set[str]:
    """Return the keys of rows that match a published row but are not compared with it."""
    by_method: dict[tuple[str, str], list[Row]] = {}
    for row in table.rows if scorer(table.measure) else ():
        if row.published is not None:
            by_method.setdefault((row.published, str(row.where)), []).append(row)
    named = ((rows, settlement_of(settlements, table, rows)) for rows in by_method.values())
    return {row.key for rows, each in named if each is not None for row in rows if row.key != (each.row or rows[0].key)}


def agrees(ours: CellScore, their: Published, paper: Paper, near: float) -> bool:
    return distance(ours, their) <= near or judged(ours, their, paper) == "within"


def distance(ours: CellScore, their: Published) -> float:
    """Return the points between two means, without floating-point noise."""
    return round(abs(ours.mean - float(their.mean)), 9)


def _settled(
    table: Table,
    column: Column,
    their: Published,
    first: tuple[Row, str],
    scores: Mapping[tuple[Row, str], CellScore],
    close: Sequence[tuple[Row, str]],
    named: Settlement | None,
    last: str,
    spread: Interval | None,
) -> Settled:
    """Settle one cell; it is compared with the row and model ``first``, ``close`` agree.

    Args:
        last: description of the row that agrees in the last round.
        spread: interval of single draws of ``first``.
    """
    ours = scores.get(first)
    text = "" if ours is None else f"{ours.mean:.1f}"
    settled = partial(Settled, table.key, first[0].title, column.key, their.text, text, model=first[1], dataset=column.dataset)
    if ours is None:
        return settled(NOT_RUN)
    if close:
        row, model = close[0]
        finding = AGREES if close[0] == first else OTHER_MODEL if row is first[0] else SETTING
        return settled(finding, f"{row.title}, {model}: {scores[close[0]].mean:.1f}")
    if last:
        return settled(LAST, last)
    draws_text = (
        "" if spread is None else f"{spread.draws} draws of the masks: {spread.mean:.1f}, single ones {spread.low:.1f} to {spread.high:.1f}"
    )
    if spread is not None and spread.low <= float(their.mean) <= spread.high:
        return settled(DRAW, draws_text)
    tried = "; ".join(
        [*(f"{row.title}, {model}: {score.mean:.1f}" for (row, model), score in scores.items()), *([draws_text] if draws_text else [])]
    )
    for each in named.differs if named else ():
        applies = not each.tables or table.key in each.tables
        if applies and (not each.columns or {column.dataset, column.key} & set(each.columns)):
            return settled(each.finding, tried, reason=each.reason)
    return settled(OPEN, tried)


PER_SEED = "split.per_seed=[masks]"


class Interval(NamedTuple):
    """95 % prediction interval of a single draw from ``draws`` normal ones: mean +- t s sqrt(1 + 1/draws)."""

    mean: float
    low: float
    high: float
    draws: int


def single_draw(scores: Sequence[float]) -> Interval | None:
    """Compute the interval from one score per draw; None for fewer than three."""
    if len(scores) < 3:
        return None
    mean, away = fmean(scores), float(stdtrit(len(scores) - 1, 0.975)) * stdev(scores) * math.sqrt(1 + 1 / len(scores))
    return Interval(mean, mean - away, mean + away, len(scores))
