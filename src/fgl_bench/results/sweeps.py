"""Recorded sweeps of a results folder, and the default selection of runs for a table."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fgl_bench.errors import UserError
from fgl_bench.results.choose import Chosen, Unlike, choose, value
from fgl_bench.results.frame import CLIENT, Result
from fgl_bench.results.question import Question, as_text, canonical, matches, short

NAME = "sweeps.jsonl"
"""The file in ``results_dir`` with one line per sweep: end time, command and folders of its runs."""
ALL = "all"


@dataclass(frozen=True)
class RecordedSweep:
    """A finished sweep, or search of ``fgl-bench tune``, with its existing runs.

    Attributes:
        number: its line number in the file, from 1.
        finished: ISO 8601, UTC.
        rows, cols: keys of its table; empty without a table.
    """

    number: int
    command: str
    finished: str
    runs: tuple[Result, ...]
    rows: tuple[str, ...]
    cols: tuple[str, ...]
    search: bool


def record(folder: Path, runs: Sequence[Path], command: str, question: Question | None, search: bool = False) -> int:
    """Append a sweep to the file of a ``results_dir``, with the folders of its runs and its table's question; returns its number.

    Args:
        search: the runs are trials of a search; tables and reports show them only on request.
    """
    path, inside = folder / NAME, [str(run.relative_to(folder)) for run in runs]
    about: dict[str, Any] = {"finished": datetime.now(UTC).isoformat(timespec="seconds"), "command": command, "runs": inside}
    about |= {"search": True} if search else {}
    line = json.dumps(about | ({} if question is None else {"rows": question.rows, "cols": question.cols}))
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")  # one write, so that lines of concurrent sweeps do not interleave
    return path.read_text(encoding="utf-8").splitlines().index(line) + 1


def read_sweeps(folder: Path, runs: Sequence[Result]) -> list[RecordedSweep]:
    """Return the sweeps of a ``results_dir``, or of ``runs/`` in it, that contain any of ``runs``, oldest first.

    Damaged lines are ignored.
    """
    path = next((path for path in (folder / NAME, folder / "runs" / NAME) if path.is_file()), None)
    if path is None:
        return []
    sweeps, by_folder = [], {run.folder: run for run in runs}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            names = dict.fromkeys(entry["runs"])  # a search may repeat a trial
            own = tuple(by_folder[path.parent / name] for name in names if path.parent / name in by_folder)
            if own:
                rows, cols = (tuple(map(str, entry.get(name, ()))) for name in ("rows", "cols"))
                search = bool(entry.get("search"))
                sweeps.append(RecordedSweep(number, str(entry["command"]), str(entry["finished"]), own, rows, cols, search))
    return sweeps


def pick(sweeps: Sequence[RecordedSweep], sweep: str | int | None) -> RecordedSweep | None:
    """Return the requested sweep, by default the newest; None for all runs of a folder.

    Args:
        sweep: ``"all"``, or a sweep's number.

    Raises:
        UserError: the sweep does not exist.
    """
    newest = next((each for each in reversed(sweeps) if not each.search), None)
    if sweep == ALL or (sweep is None and newest is None):
        return None
    chosen = newest if sweep is None else next((each for each in sweeps if str(each.number) == str(sweep)), None)
    if chosen is None:
        numbers = ", ".join(str(each.number) for each in sweeps)
        raise UserError(f"sweep={short(str(sweep))}: must be {ALL}" + (f" or the number of a sweep: {numbers}" if numbers else ""))
    return chosen


def finished_since(sweep: RecordedSweep, runs: Sequence[Result]) -> list[Result]:
    """Return the runs outside the sweep that ended after it."""
    return [run for run in runs if run.summary["finished"] >= sweep.finished and all(run is not own for own in sweep.runs)]


def without_trials(runs: Sequence[Result], sweeps: Sequence[RecordedSweep]) -> list[Result]:
    """Drop runs that only searches made, unless all runs are such; a note on stderr names what is left out."""
    wanted = {run.folder for each in sweeps if not each.search for run in each.runs}
    trials = {run.folder: each.number for each in sweeps if each.search for run in each.runs if run.folder not in wanted}
    left = [run for run in runs if run.folder not in trials]
    if not left or len(left) == len(runs):
        return list(runs)
    numbers = ", ".join(f"sweep={number}" for number in dict.fromkeys(trials.values()))
    print(f"note: {len(runs) - len(left)} trials of searches are left out; {numbers} shows them", file=sys.stderr)
    return left


def in_scope(folder: Path, runs: Sequence[Result], sweep: str | int | None) -> list[Result]:
    """Return the runs of the requested sweep, comparable or not; by default of the newest sweep and later runs.

    Raises:
        UserError: the sweep does not exist.
    """
    sweeps = read_sweeps(folder, runs)
    chosen = pick(sweeps, sweep)
    runs = without_trials(runs, sweeps) if sweep is None else runs
    if chosen is None:
        return list(runs)
    shown = [*chosen.runs, *(finished_since(chosen, runs) if sweep is None else ())]
    if sweep is None:
        note_left_out(chosen, sweeps, len(shown), len(runs))
    return shown


def note_left_out(newest: RecordedSweep, sweeps: Sequence[RecordedSweep], shown: int, total: int) -> None:
    """Note on stderr the shown sweep and how to see others, unless all runs are shown."""
    if shown < total:
        another = f", sweep={sweeps[0].number} to {sweeps[-1].number} one sweep" if len(sweeps) > 1 else ""
        command = short(newest.command)
        print(f"note: {shown} of {total} runs, from the newest sweep ({command}); sweep={ALL} takes all runs{another}", file=sys.stderr)


def choose_in(folder: Path, runs: Sequence[Result], question: Question, sweep: str | int | None = None, own_keys: bool = False) -> Chosen:
    """Return the runs that a question asks for, by row and column, from the newest sweep unless another is requested.

    Runs made after the newest sweep are included if they are comparable with it.

    Args:
        sweep: ``"all"`` for all runs of the folder, or a sweep's number.
        own_keys: use the rows and columns of the sweep's own table.

    Raises:
        UserError: the runs cannot be compared; the message ends with a working command.
    """
    reporting = [run for run in runs if question.metric in run.summary.get("metrics", {})]
    if sweep in (None, ALL) and 0 < len(reporting) < len(runs):
        print(f"note: {len(runs) - len(reporting)} runs without {question.metric} are left out", file=sys.stderr)
        runs = reporting
    sweeps = read_sweeps(folder, runs)
    chosen = pick(sweeps, sweep)
    runs = without_trials(runs, sweeps) if sweep is None else runs
    if chosen is None:
        return choose_or_advise(folder, runs, question, sweep)
    if own_keys and chosen.rows:
        question = replace(question, rows=chosen.rows, cols=chosen.cols)
    later = finished_since(chosen, runs) if sweep is None else []
    with suppress(UserError):
        if later:
            wider = choose([*chosen.runs, *later], question)
            note_left_out(chosen, sweeps, len(chosen.runs) + len(later), len(runs))
            return wider
    if sweep is None:
        note_left_out(chosen, sweeps, len(chosen.runs), len(runs))
    return choose_or_advise(folder, chosen.runs, question, sweep)


def choose_or_advise(folder: Path, runs: Sequence[Result], question: Question, sweep: str | int | None) -> Chosen:
    """Call :func:`fgl_bench.results.choose.choose`; errors end with a working command."""
    try:
        return choose(runs, question)
    except Unlike as reason:
        command = comparable(folder, runs, question, sweep)
        raise UserError(f"{reason}; try: {command}" if command else str(reason)) from reason


def comparable(folder: Path, runs: Sequence[Result], question: Question, sweep: str | int | None) -> str | None:
    """Return a command for the runs that equal the newest one in all keys outside the question; None without such a command."""
    where: dict[str, tuple[str, ...]] = dict(question.where)
    asked_for = [run for run in runs if all(met(run, key, allowed) for key, allowed in where.items() if key != CLIENT)]
    newest_first = sorted(asked_for, key=finished, reverse=True)
    while True:
        narrowed = replace(question, where=where)
        try:
            choose(runs, narrowed)
        except Unlike as reason:
            new = {key: values_like(newest_first, key, question) for key in reason.keys}
            if new.items() <= where.items():
                return None
            where |= new
        except UserError:
            return None
        else:
            scoped = [] if sweep is None else [f"sweep={sweep}"]
            return shlex.join(["fgl-bench", "table", str(folder), *scoped, *narrowed.arguments])


def values_like(newest_first: Sequence[Result], key: str, question: Question) -> tuple[str, ...]:
    """Return the newest run's value of a key, or for a key of only some choices, its newest value or none."""
    values = [value(run, key) for run in newest_first]
    if key.partition(".")[0] not in question.keys or None not in values:
        return (as_text(values[0]),)
    return as_text(next((each for each in values if each is not None), None)), as_text(None)


def met(run: Result, key: str, allowed: Sequence[str]) -> bool:
    """Return True if a run has one of the allowed values."""
    return any(matches(value(run, key), text) for text in allowed)


def finished(run: Result) -> Any:
    return run.summary["finished"]


def question_of(swept: Sequence[str]) -> Question:
    """Return the question of a sweep's table: the method, else the first swept key, as rows; the others as columns."""
    keys = [canonical(key) for key in swept]
    rows = "algorithm" if "algorithm" in keys else keys[0]
    return Question((rows,), tuple(key for key in keys if key != rows))
