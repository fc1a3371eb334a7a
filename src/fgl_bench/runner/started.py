"""Processes that are started in turn, some at a time, until all have ended or a signal ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, ClassVar, Generic, TypeVar

from fgl_bench.results.progress import Display
from fgl_bench.utils.allocator import environment
from fgl_bench.utils.processes import end_with

W = TypeVar("W")
F = TypeVar("F")


@dataclass
class Started:
    """A process under way; what it prints goes to a file that nobody else sees."""

    process: subprocess.Popen
    log: IO[str]
    begin: float

    @classmethod
    def of(cls, line: Sequence[str], own_session: bool = False) -> Started:
        """Start this command; it ends with this process.

        Args:
            own_session: whether it does not hear the terminal's Ctrl-C.
        """
        log = tempfile.TemporaryFile("w+", encoding="utf-8")
        dying = end_with(os.getpid()) if sys.platform == "linux" else None
        process = subprocess.Popen(
            line, stdout=log, stderr=subprocess.STDOUT, env=environment(), preexec_fn=dying, start_new_session=own_session
        )
        return cls(process, log, time.monotonic())

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self.begin

    def told(self) -> list[str]:
        """Its last six lines; to be asked once, after it has ended."""
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()][-6:]
        self.log.close()
        return lines


@dataclass(kw_only=True)
class InTurn(ABC, Generic[W, F]):
    """Work that waits, of type W, and what is under way; reasons of what fails, of type F, go to ``failures``.

    Attributes:
        jobs: how many processes at a time.
    """

    pause: ClassVar[float] = 0.2  # seconds between two looks at the processes

    waiting: list[W]
    jobs: int
    running: list[tuple[W, Started]] = field(default_factory=list)
    failures: list[F] = field(default_factory=list)
    stopping: bool = False

    @abstractmethod
    def begin(self, display: Display) -> int:
        """Start what there is room for; returns how much was left out."""

    @abstractmethod
    def end(self, work: W, started: Started, display: Display) -> int:
        """Take in what has ended; returns how much else is done by that."""

    @abstractmethod
    def rest(self) -> float:
        """Seconds that what waits and what is under way are likely to take on one core."""

    @abstractmethod
    def name(self, work: W) -> str:
        """What the display calls it."""

    def make(self) -> None:
        """Start, await and take in everything; what is under way when a signal comes is ended."""

        # A flag that the loop reads, and no exception, which could strike between a process and the note of it. No method either: a
        # handler that is taken back is turned into text by Python, a method with all that its object holds, which here is a whole plan.
        def stop(*_: object) -> None:
            self.stopping = True

        previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        with Display(len(self.waiting)) as display:
            try:
                self._loop(display)
            finally:
                for _, started in self.running:
                    started.process.terminate()
                for _, started in self.running:
                    started.process.wait()
                    started.log.close()
                for number, handler in previous.items():
                    signal.signal(number, handler)

    @property
    def status(self) -> int:
        """Exit status once everything is told: 130 after a signal, which is said, 1 where something failed, else 0."""
        if self.stopping:
            print("interrupted; finished runs are kept, the same command goes on", file=sys.stderr)
            return 130
        return int(bool(self.failures))

    def _loop(self, display: Display) -> None:
        made, before, left, since = 0, -1, 0.0, 0.0
        while (self.waiting or self.running) and not self.stopping:
            made += self.begin(display)
            for pair in [pair for pair in self.running if not self.stopping and pair[1].process.poll() is not None]:
                self.running.remove(pair)
                made += 1 + self.end(*pair, display)
            if made != before:  # estimates of a long plan take longer than the pause, and nothing but ended work changes them
                before, left, since = made, self.rest() / self.jobs, time.monotonic()
            display.show(made, [self.name(work) for work, _ in self.running], max(0.0, left - (time.monotonic() - since)))
            if self.running:
                time.sleep(self.pause)
