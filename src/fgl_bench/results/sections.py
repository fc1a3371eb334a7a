"""Arranges arbitrary runs in few tables: differing keys become rows and columns; runs with little in common get separate tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgl_bench.results.choose import Chosen, choose, latest, unlike, value, values
from fgl_bench.results.frame import Result
from fgl_bench.results.question import ANY, Question, as_text

ROW = "algorithm"
COLUMNS = ("dataset", "split")
LAST = ("rounds", "trips")  # keys that often follow from others
FULL = 0.5  # minimum share of cells with a run


def sections(runs: Sequence[Result]) -> list[Chosen]:
    """Return the fewest tables that show every run once and are at least half full. For a user's class, only runs of the latest version."""
    return [choose(part, question_of(part)) for part in split(latest(runs))]


def split(runs: list[Result]) -> list[list[Result]]:
    """Split the runs repeatedly by the key that leaves the fewest empty cells."""
    asked = question_of(runs)
    whole = size(runs, asked)
    if len(runs) >= FULL * whole:
        return [runs]
    parted = {key: parts(runs, key) for key in (*asked.cols, *asked.rows) if key != ROW}
    sizes = {key: sum(size(part, asked) for part in part_list) for key, part_list in parted.items()}
    best = min(sizes, key=lambda key: sizes[key], default=None)
    if best is None or sizes[best] >= whole:
        return [runs]
    return [few for part in parted[best] for few in split(part)]


def parts(runs: Sequence[Result], key: str) -> list[list[Result]]:
    """Group the runs by the values of a key."""
    groups: dict[str, list[Result]] = {}
    for run in runs:
        groups.setdefault(as_text(value(run, key)), []).append(run)
    return list(groups.values())


def size(runs: Sequence[Result], asked: Question) -> int:
    """Return rows times columns."""
    return len({values(run, asked.rows) for run in runs}) * len({values(run, asked.cols) for run in runs})


def question_of(runs: Sequence[Result]) -> Question:
    """Build a question from all differing keys: keys of the method as rows, the others as columns.

    A key that is determined by the previous keys is not used; ``where`` allows any value of it.
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
    """Return True if the values of ``keys`` determine the value of ``key``."""
    known: dict[tuple[str, ...], Any] = {}
    return all(known.setdefault(values(run, keys), value(run, key)) == value(run, key) for run in runs)
