"""What a sweep says of its runs: a line for each that has ended, how many there are, and about how long the rest takes.

Runs may end in other processes (joblib, Ray, submitit), whose output would get mixed up or lost. They leave a note in the sweep's folder,
and the process that has begun the sweep reads it out.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgl_bench.results.console import percent
from fgl_bench.results.divergence import warning
from fgl_bench.results.estimates import duration
from fgl_bench.results.progress import Display
from fgl_bench.results.scored import selected
from fgl_bench.utils.masking import masked

FOLDER = "FGL_BENCH_SWEEP_DIR"  # the variable that names the folder, in workers too
POLL = 0.2


@dataclass(frozen=True)
class Note:
    """How a run has ended.

    Attributes:
        number: of the run in its sweep, from 0.
        text: for stdout.
        problem: for stderr, empty where there is none.
    """

    number: int
    failed: bool
    text: str
    problem: str = ""


def note_of(number: int, summary: dict[str, Any], folder: Path, again: bool, selection: str, average: str) -> Note:
    """A run that is complete: its scores and its folder."""
    scores = {model: selected(stats, selection, average) for model, stats in summary["test"].items()}
    shown = ", ".join(f"{model} {'not recorded' if score is None else percent(score)}" for model, score in scores.items())
    done = "complete already" if again else f"{summary['seconds']['total']:.0f} s"
    return Note(number, False, f"test {summary['metric']} {shown} ({done})\n  {folder}", warning(summary) or "")


class Sweep(AbstractContextManager):
    """The process that has begun a sweep; on a terminal with one bar for all runs that are made elsewhere.

    Args:
        jobs: the overrides of each run.
        elsewhere: whether runs are made by other processes. Otherwise a bar would be in the way of the bar of each run.
    """

    def __init__(self, jobs: Sequence[Sequence[str]], elsewhere: bool):
        common = set(jobs[0]).intersection(*jobs) if len(jobs) > 1 else set()
        self.names = [masked(" ".join(text for text in job if text not in common)) for job in jobs]
        total = len(jobs)
        self.total, self.done, self.failed, self.begin = total, 0, 0, time.monotonic()
        self.folder, self.ended = Path(os.environ.get(FOLDER, ".")), threading.Event()
        self.display = Display(total if elsewhere else 0)
        self.thread = threading.Thread(target=self._listen, daemon=True) if elsewhere else None

    def __enter__(self) -> Sweep:
        global _here
        _here = self
        print(f"sweep of {self.total} run{'s' * (self.total > 1)}", flush=True)
        self.display.__enter__()
        if self.thread is not None:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        global _here
        _here = None
        self.ended.set()
        if self.thread is not None:
            self.thread.join()
            self._read()
        self.display.__exit__()

    def tell(self, note: Note) -> None:
        """Say how a run has ended."""
        global _failures
        self.done, self.failed, _failures = self.done + 1, self.failed + note.failed, _failures + note.failed
        left = (time.monotonic() - self.begin) / self.done * (self.total - self.done)
        state = [f"{self.done}/{self.total}"]
        state += [f"{self.failed} failed"] if self.failed else []
        state += [f"{duration(left)} left"] if left else []
        name = self.names[note.number] if note.number < self.total else ""
        self.display.say(f"[{', '.join(state)}] {name}\n  {note.text}")
        self.display.show(self.done, [f"{self.failed} failed"] if self.failed else [], left)
        if note.problem:
            print(note.problem, file=sys.stderr, flush=True)

    def _listen(self) -> None:
        while not self.ended.wait(POLL):
            self._read()

    def _read(self) -> None:
        for path in sorted(self.folder.glob("*.ended"), key=lambda path: path.stat().st_mtime):
            note = Note(**json.loads(path.read_text(encoding="utf-8")))
            path.unlink()
            self.tell(note)


_here: Sweep | None = None  # of this process
_failures = 0  # told by this process


def told_failures() -> int:
    """How many failed runs this process has told of."""
    return _failures


def begun_here() -> Sweep | None:
    """The sweep that this process has begun."""
    return _here


def leave(number: int, note: Note) -> bool:
    """Leave a note for the process that has begun the sweep; returns whether that may read it (its folder may be on another machine)."""
    folder = Path(os.environ.get(FOLDER, ""))
    if not os.environ.get(FOLDER) or not folder.is_dir():
        return False
    draft = folder / f"{number}.draft"
    draft.write_text(json.dumps(vars(note)), encoding="utf-8")
    os.replace(draft, folder / f"{number}.ended")
    return True
