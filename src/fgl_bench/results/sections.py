"""Any runs as a few tables: what differs among them makes rows and columns, and runs that have little in common get tables of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgl_bench.results.choose import Chosen, choose, latest, unlike, value, values
from fgl_bench.results.frame import Result
from fgl_bench.results.question import ANY, Question, said

ROW = "algorithm"
COLUMNS = ("dataset", "split")
LAST = ("rounds", "trips")  # keys that often follow from others
FULL = 0.5  # of a table's cells that have a run


def sections(runs: Sequence[Result]) -> list[Chosen]:
    """Tables that show every run once, as few as are at least half full. Of a user's own class, runs of the last version count."""
    return [choose(part, question_of(part)) for part in split(latest(runs))]


def split(runs: list[Result]) -> list[list[Result]]:
    """The runs in parts: time and again by the key that leaves fewest empty cells."""
    asked = question_of(runs)
    whole = size(runs, asked)
    if len(runs) >= FULL * whole:
        return [runs]
    parted = {key: parts(runs, key) for key in (*asked.cols, *asked.rows) if key != ROW}
    sizes = {key: sum(size(part, asked) for part in found) for key, found in parted.items()}
    best = min(sizes, key=lambda key: sizes[key], default=None)
    if best is None or sizes[best] >= whole:
        return [runs]
    return [few for part in parted[best] for few in split(part)]


def parts(runs: Sequence[Result], key: str) -> list[list[Result]]:
    """The runs by the values of a key."""
    found: dict[str, list[Result]] = {}
    for run in runs:
        found.setdefault(said(value(run, key)), []).append(run)
    return list(found.values())


def size(runs: Sequence[Result], asked: Question) -> int:
    """Rows times columns."""
    return len({values(run, asked.rows) for run in runs}) * len({values(run, asked.cols) for run in runs})


def question_of(runs: Sequence[Result]) -> Question:
    """Every key in which the runs differ, a method's own in the rows, the others in the columns.

    A key that has one value wherever those before it are the same adds nothing; it is allowed to differ.
    """
    differing = list(unlike(runs, {ROW, *COLUMNS}))
    differing.sort(key=lambda key: (key in LAST, LAST.index(key) if key in LAST else 0))
    rows: tuple[str, ...] = (ROW,)
    cols: tuple[str, ...] = COLUMNS
    follow: dict[str, tuple[str, ...]] = {}
    for key in differing:
        own = key.startswith(f"{ROW}.")
        if decided(runs, rows if own else cols, key):
            follow[key] = (ANY,)
        elif own:
            rows += (key,)
        else:
            cols += (key,)
    return Question(rows, cols, follow)


def decided(runs: Sequence[Result], keys: Sequence[str], key: str) -> bool:
    """Whether a key has one value wherever the others are the same."""
    known: dict[tuple[str, ...], Any] = {}
    return all(known.setdefault(values(run, keys), value(run, key)) == value(run, key) for run in runs)
