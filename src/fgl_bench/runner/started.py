"""Processes that are started in turn, some at a time, until all have ended or a signal ends them."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fgl_bench.results.estimates import duration
from fgl_bench.results.progress import Display
from fgl_bench.utils.processes import end_with


class Started(subprocess.Popen):
    """A running process, which ends with this one and ignores the terminal's Ctrl-C; its output is written to a file."""

    def __init__(self, line: Sequence[str]):
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.begin = time.monotonic()
        dying = end_with(os.getpid()) if sys.platform == "linux" else None
        super().__init__(line, stdout=self.log, stderr=subprocess.STDOUT, preexec_fn=dying, start_new_session=True)

    def last_lines(self) -> list[str]:
        """The last six lines that it printed; closes the file."""
        with self.log:
            self.log.seek(0)
            return [line.strip() for line in self.log.read().splitlines() if line.strip()][-6:]


@dataclass(kw_only=True)
class InTurn(ABC):
    """Work that waits, and work that is under way with its process.

    Attributes:
        jobs: how many processes at a time.
        until: start nothing that would end later, by ``time.time``.
        failures: work that failed, with the last line that its process printed.
    """

    pause: ClassVar[float] = 0.2  # seconds between two looks at the processes
    ends_in_time: ClassVar[bool] = False  # work that keeps ``until`` itself may be started at any time before

    waiting: list[Any]
    jobs: int
    until: float = math.inf
    running: list[tuple[Any, Started]] = field(default_factory=list)
    failures: list[tuple[Any, str]] = field(default_factory=list)
    stopping: bool = False

    @abstractmethod
    def name(self, work: Any) -> str:
        """The work's name on the display."""

    @abstractmethod
    def cost(self, work: Any) -> float | None:
        """Expected seconds of the work on one core; None if unknown."""

    @abstractmethod
    def line(self, work: Any) -> list[str]:
        """The command that does the work."""

    @abstractmethod
    def ended(self, work: Any, status: int, lines: list[str], display: Display) -> str | None:
        """Process finished work, from its process's exit status and last lines; returns an addition to the report, None if it failed."""

    def startable(self) -> Iterator[Any]:
        """Take work that waits while there is room."""
        while self.waiting and len(self.running) < self.jobs and not self.stopping:
            yield self.waiting.pop(0)

    def make(self) -> None:
        """Start all work, wait for it and process its results; a signal ends running work."""

        # Set a flag: an exception could interrupt bookkeeping between a process's start and its record. Not a method either: a
        # handler that is taken back is turned into text by Python, a method with all that its object holds, which here is a whole plan.
        def stop(*_: object) -> None:
            self.stopping = True

        previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        with Display(len(self.waiting)) as display:
            try:
                self._loop(display)
            finally:
                for _, process in self.running:
                    process.terminate()
                for _, process in self.running:
                    process.wait()
                    process.log.close()
                for number, handler in previous.items():
                    signal.signal(number, handler)

    @property
    def status(self) -> int:
        """Exit status once everything is reported: 130 after a signal, which is printed, 1 if something failed, else 0."""
        if self.stopping:
            print("interrupted; finished runs are kept, the same command continues", file=sys.stderr)
            return 130
        return int(bool(self.failures))

    def _loop(self, display: Display) -> None:
        total, before, left, since = len(self.waiting), -1, 0.0, 0.0
        while (self.waiting or self.running) and not self.stopping:
            for work in self.startable():
                self._begin(work, display)
            for pair in [pair for pair in self.running if not self.stopping and pair[1].poll() is not None]:
                self.running.remove(pair)
                self._end(*pair, display)
            ended = total - len(self.waiting) - len(self.running)
            if ended != before:  # estimates of a long plan take longer than the pause, and nothing but ended work changes them
                unfinished = [*self.waiting, *(work for work, _ in self.running)]
                before, left, since = ended, sum(self.cost(work) or 0 for work in unfinished) / self.jobs, time.monotonic()
            display.show(ended, [self.name(work) for work, _ in self.running], max(0.0, left - (time.monotonic() - since)))
            if self.running:
                time.sleep(self.pause)

    def _begin(self, work: Any, display: Display) -> None:
        if time.time() + (0 if self.ends_in_time else self.cost(work) or 0) > self.until:
            display.say(f"left out, no time: {self.name(work)}")
            return
        display.say(f"start: {self.name(work)} ({duration(self.cost(work))})")
        self.running.append((work, Started(self.line(work))))

    def _end(self, work: Any, process: Started, display: Display) -> None:
        seconds, lines = time.monotonic() - process.begin, process.last_lines()
        more = self.ended(work, process.returncode, lines, display)
        if more is not None:
            display.say(f"done: {self.name(work)} in {seconds:.0f} s{more}")
            return
        lines = lines or [f"exit status {process.returncode}"]
        self.failures.append((work, lines[-1]))
        display.say(f"failed: {self.name(work)} after {seconds:.0f} s (exit {process.returncode})", *(f"    {line}" for line in lines))
