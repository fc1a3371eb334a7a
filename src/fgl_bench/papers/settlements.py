"""What became of every printed cell: it agrees with a run of ours, or why it does not.

``results/settlements/<paper>.yaml`` names, for each printed row, the row and the model of ours that it is compared with: those that
:mod:`fgl_bench.papers.matched_rows` chose, or others for the reason given as ``why``. All else follows from the stored runs; a reason for
a difference is typed only where no run of ours is near the printed number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.analysis import CellScore, judged, of_accuracy, scorer
from fgl_bench.papers.draws import Interval, single_draw
from fgl_bench.papers.plan import Column, Paper, Row, Stored, Table, look_up
from fgl_bench.papers.published import Printed, Published

NEAR = 1.5  # points
AGREES, OTHER_MODEL, SETTING, NOT_RUN, OPEN = "agrees", "other model", "another setting", "not run", "open"
LAST, DRAW = "last round", "another draw"
TYPED = {"contradiction": "printed numbers contradict each other", "not reproducible": "not reproducible"}
SETTLED = (AGREES, OTHER_MODEL, SETTING, LAST, DRAW, *TYPED)


@dataclass(frozen=True)
class Difference:
    """Why columns of a printed row are not reached.

    Attributes:
        columns: datasets or column keys; empty for all.
        tables: keys of the tables it speaks of; empty for all of the row's.
        finding: a key of :data:`TYPED`.
        reason: one sentence, with the arithmetic or with what was tried.
    """

    finding: str
    reason: str
    columns: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settlement:
    """What a printed row is compared with.

    Attributes:
        printed: the method's name in the paper's csv.
        model: ``received`` or ``trained``.
        row: key of our row; empty for the first one in the table that stands for the printed cell.
        tables: keys of the tables it speaks of; empty for all.
        why: what decides, where it is not the choice by rule: the authors' code, or the paper's text.
    """

    printed: str
    model: str
    row: str = ""
    tables: tuple[str, ...] = ()
    differs: tuple[Difference, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Settled:
    """The finding on one printed cell.

    Attributes:
        finding: one of :data:`SETTLED`, ``not run``, or ``open`` (run, apart from the print, and nobody has said why).
        shown_by: title, model and score of the run that agrees, the range of the draws, or all that was tried.
        model: of ours.
        dataset: of the column.
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
    """The settlements of a paper, as written; none where there is no such file."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else []
    return tuple(
        Settlement(**{**in_tuples(entry), "differs": tuple(Difference(**in_tuples(each)) for each in entry.get("differs", ()))})
        for entry in entries
    )


def in_tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with lists as tuples of texts, and texts in one line."""
    return {key: tuple(map(str, value)) if isinstance(value, list) else " ".join(str(value).split()) for key, value in entry.items()}


def settle(
    paper: Paper,
    table: Table,
    stored: Stored,
    published: Printed,
    settlements: Sequence[Settlement],
    draws: Stored = MappingProxyType({}),
) -> list[Settled]:
    """The finding on every printed cell of a table that a row of ours stands for.

    A cell agrees if, on the row and model that its settlement names, ours is within 1.5 points of the print or both 95 % intervals
    overlap (trips: the intervals only). Else the first of the other rows and models for the same printed cell that is within 1.5 points
    explains it, or the score of the last round, or one whose interval overlaps, or the draws of the masks.

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
            close = [place for place, score in scores.items() if agrees(score, their, paper, near)]
            last = _last_round(table, column, rows, models[0], stored, their, paper)
            # An interval that overlaps explains only where nothing is near, not in the last round either.
            near_ones = [place for place in close if place == (rows[0], models[0]) or distance(scores[place], their) <= near]
            close = near_ones if near_ones or (last and last[1]) else close
            drawn = draws.get((table.key, rows[0].key, column.key))
            score = scored(drawn, models[0], target.get(column.dataset)) if drawn else None
            spread = None if score is None or table.measure == "trips" else single_draw(score.per_seed)
            found.append(_settled(table, column, their, (rows[0], models[0]), scores, close, named, last[0] if last else "", spread))
    return found


def _last_round(
    table: Table, column: Column, rows: Sequence[Row], model: str, stored: Stored, their: Published, paper: Paper
) -> tuple[str, bool] | None:
    """Title, model and score of a row that agrees in its last round, the first that is near or else the first; whether it is near."""
    found = []
    for row in rows if table.measure == "accuracy" else ():
        cell = stored.get((table.key, row.key, column.key))
        last = cell["test"][model].get("last") if cell else None
        score = of_accuracy({"test": {model: last}}, model, None) if last and "per_seed" in last else None
        if score is not None and agrees(score, their, paper, NEAR):
            found.append((f"{row.title}, {model}, last round: {score.mean:.1f}", distance(score, their) <= NEAR))
    return next((each for each in found if each[1]), found[0] if found else None)


def settlement_of(settlements: Sequence[Settlement], table: Table, rows: Sequence[Row]) -> Settlement | None:
    """What speaks of the printed cell that ``rows`` stand for."""
    keys, method = {"", *(row.key for row in rows)}, rows[0].published
    of_table = (each for each in settlements if not each.tables or table.key in each.tables)
    return next((each for each in of_table if each.printed == method and each.row in keys), None)


def alternatives(table: Table, settlements: Sequence[Settlement]) -> set[str]:
    """Keys of the rows that stand for a printed row which another row of the table is compared with."""
    by_method: dict[tuple[str, str], list[Row]] = {}
    for row in table.rows if scorer(table.measure) else ():
        if row.published is not None:
            by_method.setdefault((row.published, str(row.where)), []).append(row)
    named = ((rows, settlement_of(settlements, table, rows)) for rows in by_method.values())
    return {row.key for rows, each in named if each is not None for row in rows if row.key != (each.row or rows[0].key)}


def agrees(ours: CellScore, their: Published, paper: Paper, near: float) -> bool:
    return distance(ours, their) <= near or judged(ours, their, paper) == "within"


def distance(ours: CellScore, their: Published) -> float:
    """Points between two means, without the rounding of their difference."""
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
    """One cell; ``first`` is the row and model that it is compared with, ``close`` what agrees.

    Args:
        last: what agrees in the last round.
        spread: where single draws of ``first`` lie.
    """
    ours = scores.get(first)
    text = "" if ours is None else f"{ours.mean:.1f}"
    made = partial(Settled, table.key, first[0].title, column.key, their.text, text, model=first[1], dataset=column.dataset)
    if ours is None:
        return made(NOT_RUN)
    if close:
        row, model = close[0]
        finding = AGREES if close[0] == first else OTHER_MODEL if row is first[0] else SETTING
        return made(finding, f"{row.title}, {model}: {scores[close[0]].mean:.1f}")
    if last:
        return made(LAST, last)
    over = (
        "" if spread is None else f"{spread.draws} draws of the masks: {spread.mean:.1f}, single ones {spread.low:.1f} to {spread.high:.1f}"
    )
    if spread is not None and spread.low <= float(their.mean) <= spread.high:
        return made(DRAW, over)
    tried = "; ".join([*(f"{row.title}, {model}: {score.mean:.1f}" for (row, model), score in scores.items()), *([over] if over else [])])
    for each in named.differs if named else ():
        here = not each.tables or table.key in each.tables
        if here and (not each.columns or {column.dataset, column.key} & set(each.columns)):
            return made(each.finding, tried, reason=each.reason)
    return made(OPEN, tried)
