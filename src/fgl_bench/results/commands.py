"""The commands that make the runs that a table lacks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fgl_bench.results.frame import Result
from fgl_bench.results.runs import Chosen, Values
from fgl_bench.results.unlike import BUDGET, GROUPS

DEFAULT_FOLDER = Path("results/runs")


def missing_commands(chosen: Chosen, folder: Path, missing: Sequence[tuple[Values, Values]]) -> list[str]:
    """A command for every missing (row, column), as far as the runs of its row and column say what made them."""
    found = [command(chosen, folder, place) for place in missing]
    unknown = found.count(None)
    said = [f"({unknown} commands are not known: runs of version 1.0 do not say what made them)"] if unknown else []
    return [line for line in found if line is not None] + said


def command(chosen: Chosen, folder: Path, place: tuple[Values, Values]) -> str | None:
    """What makes the run at ``place``: of the keys of the rows what a run of its row was given, of all others what a run of its column was.

    An algorithm brings its scenario along.
    """
    beside, above = (first_of(chosen, side, place[side]).overrides for side in (0, 1))
    if beside is None or above is None:
        return None
    of_row = set(chosen.question.rows) | ({"scenario"} if "algorithm" in chosen.question.rows else set())
    of_row |= {*BUDGET} if of_row & {*BUDGET} else set()
    words = [text for text in beside if is_about(text, of_row)] + [text for text in above if not is_about(text, of_row)]
    return shlex.join(["fgl-bench", *words, *([] if folder == DEFAULT_FOLDER else [f"results_dir={folder}"])])


def first_of(chosen: Chosen, side: int, values: Values) -> Result:
    return next(run for place, run in chosen.runs.items() if place[side] == values)


def is_about(override: str, keys: set[str]) -> bool:
    """Return True if an override sets one of the keys, or a key of one of the groups in them."""
    key = override.lstrip("+~").partition("=")[0].replace("/", ".")
    return key in keys or next((name for prefix, name in GROUPS.items() if f"{key}.".startswith(f"{prefix}.")), None) in keys
