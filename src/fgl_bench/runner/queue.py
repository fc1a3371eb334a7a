"""Making runs as processes of their own, some at a time, until all are made, time is up or a signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from omegaconf import OmegaConf

from fgl_bench.config.groups import build
from fgl_bench.data.sums import fingerprint
from fgl_bench.reporting.estimates import duration
from fgl_bench.reporting.plan import Cell
from fgl_bench.reporting.progress import Display
from fgl_bench.reporting.store import is_complete
from fgl_bench.reporting.work import Work
from fgl_bench.utils.allocator import environment
from fgl_bench.utils.processes import end_with, quoted

POLL = 0.2


@dataclass
class Job:
    """A run under way."""

    work: Work
    cell: Cell
    process: subprocess.Popen
    log: IO[str]
    begin: float


@dataclass(frozen=True)
class Failure:
    """A run that was not made, and the last line that it said."""

    name: str
    reason: str
    command: str


@dataclass
class Runs:
    """The runs to make; those that fail go to ``failures``.

    Attributes:
        jobs: how many at a time.
        end: none is started that would end later than this, by ``time.monotonic``.
        where: presentation keys of every run; None is left out.
        absent: datasets without raw files; a run on one may download it.
        look: finds those datasets anew.
        keep: stores the complete runs of a paper.
    """

    waiting: list[tuple[Work, Cell]]
    jobs: int
    end: float
    where: Mapping[str, Any]
    absent: Collection[str]
    look: Callable[[], Collection[str]]
    keep: Callable[[Work], None]
    running: list[Job] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    stopping: bool = False

    def stop(self, *_: object) -> None:
        """Handler of Ctrl-C and of an end signal."""
        self.stopping = True

    def make(self) -> None:
        # A flag that the loop reads, and no exception, which could strike between a process and the note of it.
        previous = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM)}
        with Display(len(self.waiting)) as display:
            try:
                self.loop(display)
            finally:
                for job in self.running:
                    job.process.terminate()
                for job in self.running:
                    job.process.wait()
                    job.log.close()
                for number, handler in previous.items():
                    signal.signal(number, handler)

    def loop(self, display: Display) -> None:
        """Start, await and keep the runs."""
        made = 0
        while (self.waiting or self.running) and not self.stopping:
            for work, cell in self.startable():
                if time.monotonic() + (work.cost(cell) or 0) > self.end:
                    display.say(f"left out, no time: {work.name(cell)}")
                    made += 1
                    continue
                display.say(f"start: {work.name(cell)} ({duration(work.cost(cell))})")
                self.running.append(self.start(work, cell))
            for job in [job for job in self.running if not self.stopping and job.process.poll() is not None]:
                self.running.remove(job)
                made += 1 + self.drop(job, display)
                self.finish(job, display)
            rest = [work.cost(cell) for work, cell in self.waiting] + [job.work.cost(job.cell) for job in self.running]
            display.show(made, [job.cell.name for job in self.running], sum(seconds or 0 for seconds in rest) / self.jobs)
            if self.running:
                time.sleep(POLL)

    def startable(self) -> Iterator[tuple[Work, Cell]]:
        """Take runs that wait while there is room; of an absent dataset one at a time, until it is there or known not to come."""
        for pair in list(self.waiting):
            if len(self.running) >= self.jobs:
                return
            dataset = pair[1].dataset
            if dataset in self.absent and any(job.cell.dataset == dataset for job in self.running):
                continue
            self.waiting.remove(pair)
            yield pair

    def start(self, work: Work, cell: Cell) -> Job:
        line = [sys.executable, "-m", "fgl_bench.cli.main", *cell.overrides, "progress=false"]
        line += [f"{key}={quoted(value)}" for key, value in self.where.items() if value is not None]
        log = tempfile.TemporaryFile("w+", encoding="utf-8")
        dying = end_with(os.getpid()) if sys.platform == "linux" else None
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, env=environment(), preexec_fn=dying)
        return Job(work, cell, process, log, time.monotonic())

    def finish(self, job: Job, display: Display) -> None:
        """Keep the result of a run that has ended, or note that there is none."""
        work, cell, seconds = job.work, job.cell, time.monotonic() - job.begin
        job.log.seek(0)
        output = job.log.read().splitlines()
        job.log.close()
        if job.process.returncode == 0 and is_complete(work.folder(cell)):
            self.keep(work)
            test = work.stored[cell.digest]["test"]
            shown = ", ".join(f"{model} {percent(scores['mean'])}" for model, scores in test.items())
            display.say(f"done: {work.name(cell)} in {seconds:.0f} s: {shown}")
            work.write(cell.digest)
            return
        told = [line.strip() for line in output if line.strip()][-6:] or [f"exit status {job.process.returncode}"]
        self.failures.append(Failure(work.name(cell), told[-1], cell.command))
        display.say(f"failed: {work.name(cell)} after {seconds:.0f} s (exit {job.process.returncode})", *(f"    {line}" for line in told))

    def drop(self, job: Job, display: Display) -> int:
        """After a run on an absent dataset: it is there now, or its other runs are left out; returns how many were."""
        dataset = job.cell.dataset
        if dataset not in self.absent:
            return 0
        self.absent = self.look()
        if dataset not in self.absent:
            content = fingerprint(build(OmegaConf.create(job.cell.config["dataset"])), self.where.get("data_dir"), None) or {}
            for work in {id(work): work for work, _ in [(job.work, job.cell), *self.waiting]}.values():
                work.downloaded(dataset, content)
            job.cell = job.cell.on(content)
            self.waiting = [(work, cell.on(content) if cell.dataset == dataset else cell) for work, cell in self.waiting]
            return 0
        lost = [pair for pair in self.waiting if pair[1].dataset == dataset]
        for pair in lost:
            self.waiting.remove(pair)
        if lost:
            display.say(f"left out: {len(lost)} more run(s) that need dataset={dataset}")
        return len(lost)


def percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.1f}"
