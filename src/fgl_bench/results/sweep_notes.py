"""Progress of sweeps: one line per finished run, the number of runs, and the estimated remaining time.

Runs may end in other processes (joblib, Ray, submitit), whose output could interleave or get lost. They write a note to the sweep's
folder; the process that started the sweep prints it.
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
from fgl_bench.results.estimates import duration
from fgl_bench.results.progress import Display
from fgl_bench.results.scored import selected, warning
from fgl_bench.utils.masking import masked

FOLDER = "FGL_BENCH_SWEEP_DIR"  # the variable that names the folder, in workers too
POLL = 0.2


@dataclass(frozen=True)
class Note:
    """The outcome of a run in a sweep.

    Attributes:
        number: index of the run in its sweep, from 0.
        text: message for stdout.
        problem: message for stderr; empty without a problem.
    """

    number: int
    failed: bool
    text: str
    problem: str = ""


def note_of(number: int, summary: dict[str, Any], folder: Path, reused: bool, selection: str, average: str) -> Note:
    """Return the note of a complete run: its scores and its folder."""
    scores = {model: selected(stats, selection, average) for model, stats in summary["test"].items()}
    shown = ", ".join(f"{model} {'not recorded' if score is None else percent(score)}" for model, score in scores.items())
    done = "complete already" if reused else f"{summary['seconds']['total']:.0f} s"
    return Note(number, False, f"test {summary['metric']} {shown} ({done})\n  {folder}", warning(summary) or "")


class Sweep(AbstractContextManager):
    """Reports the runs of a sweep started by this process. A terminal shows one bar for all runs of other processes.

    Args:
        jobs: the overrides of each run.
        elsewhere: runs execute in other processes. Otherwise each run shows its own bar.
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
        global _current
        _current = self
        print(f"sweep of {self.total} run{'s' * (self.total > 1)}", flush=True)
        self.display.__enter__()
        if self.thread is not None:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = None
        self.ended.set()
        if self.thread is not None:
            self.thread.join()
            self._read()
        self.display.__exit__()

    def report(self, note: Note) -> None:
        """Print the outcome of a run."""
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
            self.report(note)


_current: Sweep | None = None  # of this process
_failures = 0  # reported by this process


def reported_failures() -> int:
    """Return the number of failed runs that this process has reported."""
    return _failures


def current_sweep() -> Sweep | None:
    """Return the sweep started by this process."""
    return _current


def leave(number: int, note: Note) -> bool:
    """Write a note for the process that started the sweep; returns False without access to its folder (another machine)."""
    folder = Path(os.environ.get(FOLDER, ""))
    if not os.environ.get(FOLDER) or not folder.is_dir():
        return False
    draft = folder / f"{number}.draft"
    draft.write_text(json.dumps(vars(note)), encoding="utf-8")
    os.replace(draft, folder / f"{number}.ended")
    return True
