"""Keeping a run while it is under way, and going on from what was kept."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgl_bench.errors import UserError
from fgl_bench.reporting import checkpoints as store
from fgl_bench.reporting.checkpoints import Unusable
from fgl_bench.scenarios.base import Rounds
from fgl_bench.scenarios.checkpoint import State
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.utils.capture import Uncaptured
from fgl_bench.utils.processes import Stopped
from fgl_bench.utils.scratch import lock
from fgl_bench.utils.stopping import STOP

PATIENCE = 3.0  # seconds that the processes of a killed run have to disappear
MISFITS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError)


@dataclass
class Checkpoints:
    """Those of one run.

    Attributes:
        folder: the run's.
        identity: its hash.
        interval: seconds between two of a program.
        method: what the algorithm is called.
        models: which ones the run keeps.
        begin: when training began, by ``time.monotonic``.
        earlier: seconds that it had taken before it was interrupted.
        strict: whether what cannot be kept ends the run, by Uncaptured.
        turns: programs that are trained in all; one that ends is kept for the others where it took its share of the interval.
    """

    folder: Path
    identity: str
    interval: float
    method: str
    models: str = "none"
    begin: float = field(default_factory=time.monotonic)
    earlier: float = 0.0
    strict: bool = False
    turns: int = 1

    def groups(self, seeds: Sequence[int], size: int) -> list[slice]:
        """The seeds of every program, ``size`` each, or as they were when the run was interrupted; says from where it goes on."""
        positions, kept, told = {seed: i for i, seed in enumerate(seeds)}, [], []
        for folder in sorted(store.place(self.folder).glob("seeds-*")):
            known = self.newest(folder)
            where = [positions.get(seed, -1) for seed in known["seeds"]] if known else []
            if known and where and where == list(range(where[0], where[0] + len(where))) and where[0] >= 0:
                kept.append(slice(where[0], where[0] + len(where)))
                told.append(known)
            elif known and max(where) >= 0:
                say(f"the checkpoint {known['path']} is not used: its seeds are not trained by one process now")
        kept.sort(key=lambda part: part.start)
        if any(one.stop > other.start for one, other in zip(kept, kept[1:], strict=False)):
            kept, told = [], []
        if told:
            self.earlier = max(self.earlier, *(known["seconds"] for known in told))
            done = " and ".join(sorted({str(known["done"]) for known in told}, key=int))
            say(f"goes on from {told[0]['unit']} {done} of {told[0]['of']}, as kept in {store.place(self.folder)}")
        parts, start = [], 0
        for stop in [*(part.start for part in kept), len(seeds)]:
            parts += [slice(first, min(first + size, stop)) for first in range(start, stop, size)]
            start = next((part.stop for part in kept if part.start == stop), stop)
        self.turns = len(parts) + len(kept)
        return sorted([*parts, *kept], key=lambda part: part.start)

    def newest(self, folder: Path) -> dict[str, Any] | None:
        """What is known of a program's newest checkpoint that can be used, with its ``path``; says why others cannot."""
        for path in store.found(folder):
            try:
                return {**store.about(path, self.identity, self.models), "path": path}
            except Unusable as reason:
                say(f"the checkpoint {path} is not used: {reason}")
        return None

    @contextmanager
    def program(self, scenario: object, seeds: Sequence[int], make: Callable[[], Simulation]) -> Iterator[Simulation]:
        """A simulation of ``seeds``, as it was when it was kept last, which keeps itself from now on."""
        program = Program(self, scenario, tuple(seeds))
        try:
            yield program.simulation(make)
        finally:
            if program.lock is not None:
                os.close(program.lock)


class Program:
    """The checkpoints of the seeds that are trained together; made in the process that trains them."""

    def __init__(self, run: Checkpoints, scenario: object, seeds: tuple[int, ...]):
        self.run, self.seeds = run, seeds
        self.unit = "round" if isinstance(scenario, Rounds) else "trip"
        self.folder = store.program(run.folder, seeds)
        self.lock: int | None = None
        self.off = self.failed = False

    def simulation(self, make: Callable[[], Simulation]) -> Simulation:
        """A fresh one, or one that goes on from the newest checkpoint that fits."""
        sim = make()
        self.state = State(sim)
        if self.folder.is_dir() and self.locked():
            for path in store.found(self.folder):
                try:
                    store.about(path, self.run.identity, self.run.models)
                    self.state.restore(*store.read(path))
                    break
                except (Unusable, *MISFITS) as reason:
                    if not isinstance(reason, Unusable):
                        say(f"the checkpoint {path} is not used: it does not fit ({type(reason).__name__}: {reason})")
                        sim = make()
                        self.state = State(sim)
        self.due = time.monotonic() + self.run.interval
        self.last = time.monotonic()
        self.end = sim.rounds if self.unit == "round" else sim.trips * len(self.seeds)
        sim.keep = self.keep
        return sim

    def locked(self) -> bool:
        """Whether this process alone writes here; says so where another one does."""
        end = time.monotonic() + PATIENCE
        while self.lock is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = lock(self.folder)
            if self.lock is not None and not self.folder.exists():  # removed in between
                os.close(self.lock)
                self.lock = None
            if self.lock is None and time.monotonic() > end:
                say(f"another process keeps this run in {self.folder}; this one goes on without checkpoints")
                self.off = True
                return False
            if self.lock is None:
                time.sleep(0.05)
            elif self.lock is not None:
                store.clear(self.folder)
        return True

    def keep(self, done: int, record: Callable[[], Any]) -> None:
        """After every step of the scenario; writes a checkpoint where one is due or the process was told to end.

        Raises:
            Stopped: it was told to end.
            UserError: a method of the package holds something that cannot be kept.
        """
        now, stop = time.monotonic(), STOP.number
        ends = done >= self.end and self.run.turns > 1 and now - self.last > self.run.interval / self.run.turns
        written = (now >= self.due or ends or stop is not None) and not self.off and self.written(done, record)
        if stop is not None:
            stopped = Stopped(stop)
            stopped.kept = f"a checkpoint after {self.unit} {done} of {self.end}" if written else ""
            raise stopped

    def written(self, done: int, record: Callable[[], Any]) -> bool:
        """Whether a checkpoint could be written."""
        try:
            if not self.locked():
                return False
            about = {"identity": self.run.identity, "seeds": list(self.seeds), "done": done, "of": self.end, "unit": self.unit}
            about["models"] = self.run.models
            about["seconds"] = round(self.run.earlier + time.monotonic() - self.run.begin, 3)
            store.write(self.folder, about, *self.state.capture(record()))
        except Uncaptured as reason:
            told = f"algorithm={self.run.method}: {reason} cannot be kept in a checkpoint"
            if self.run.strict:
                raise
            if not self.state.own:
                raise UserError(f"{told}; use checkpoint_minutes=null") from reason
            say(f"{told}; the run goes on without checkpoints")
            self.off = True
            return False
        except OSError as error:
            if not self.failed:
                say(f"no checkpoint in {self.folder} ({error.strerror or error}); the run goes on")
            self.failed = True
            return False
        finally:
            self.last = time.monotonic()
            self.due = self.last + self.run.interval
        self.failed = False
        return True


def say(text: str) -> None:
    """A line on stderr."""
    print(f"fgl-bench: {text}", file=sys.stderr, flush=True)
