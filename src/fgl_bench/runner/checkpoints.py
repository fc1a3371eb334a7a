"""Saving an unfinished run, and resuming it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from fgl_bench.errors import UserError
from fgl_bench.results import checkpoints as store
from fgl_bench.results.checkpoints import Unusable
from fgl_bench.scenarios.base import Rounds
from fgl_bench.scenarios.checkpoint import SimulationState, Unstorable
from fgl_bench.scenarios.simulation import ScenarioState, Simulation, StepCallback
from fgl_bench.utils.files import lock
from fgl_bench.utils.processes import Stopped
from fgl_bench.utils.stopping import STOP
from fgl_bench.utils.world import World

PATIENCE = 3.0  # seconds that the processes of a killed run have to disappear


@dataclass
class Checkpoints:
    """Those of one run.

    Workers that share the clients of a seed keep them together: each a part, after the same steps. Every worker makes every call.

    Attributes:
        folder: the run's.
        identity: its hash, and the models that it keeps.
        interval: seconds between two of a program.
        method: the algorithm's name.
        begin: when training began, by ``time.monotonic``.
        earlier: seconds of training before the run was interrupted.
        strict: raise Unstorable if a method cannot be saved.
        turns: number of programs; one that ends is saved for the others if it took its share of the interval.
        world: the workers that share the clients.
    """

    folder: Path
    identity: str
    interval: float
    method: str
    begin: float = field(default_factory=time.monotonic)
    earlier: float = 0.0
    strict: bool = False
    turns: int = 1
    world: World = field(default_factory=World)

    def groups(self, seeds: Sequence[int], size: int) -> list[slice]:
        """The seeds of every program: those of its checkpoint if the run was interrupted, else ``size`` each."""
        positions, resumed, progress = {seed: i for i, seed in enumerate(seeds)}, [], []
        root = store.checkpoint_folder(self.folder)
        for name in self.world.first(lambda: sorted(folder.name for folder in root.glob("seeds-*"))):
            path, known = next(self.usable(root / name), (None, None))
            where = [positions.get(seed, -1) for seed in known["seeds"]] if known else []
            if known and where[0] >= 0 and where == list(range(where[0], where[0] + len(where))):
                resumed.append(slice(where[0], where[0] + len(where)))
                progress.append(known)
            elif known and max(where) >= 0:
                self.say(f"the checkpoint {path} is not used: its seeds are not trained by one process now")
        resumed.sort(key=lambda part: part.start)
        if any(one.stop > other.start for one, other in pairwise(resumed)):
            resumed, progress = [], []
        if progress:
            self.earlier = max(self.earlier, *(known["seconds"] for known in progress))
            done = " and ".join(sorted({str(known["done"]) for known in progress}, key=int))
            self.say(f"resuming at {progress[0]['unit']} {done} of {progress[0]['of']} from {root}")
        parts, start = [], 0
        for stop in [*(part.start for part in resumed), len(seeds)]:
            parts += [slice(first, min(first + size, stop)) for first in range(start, stop, size)]
            start = next((part.stop for part in resumed if part.start == stop), stop)
        self.turns = len(parts) + len(resumed)
        return sorted([*parts, *resumed], key=lambda part: part.start)

    def usable(self, folder: Path, quiet: bool = False) -> Iterator[tuple[Path, dict[str, Any]]]:
        """This worker's part of every usable checkpoint of a program, newest first, with its progress. Every worker iterates alike.

        Unless ``quiet``, says why others are not used.
        """
        part, size = store.of_worker(folder, self.world.rank, self.world.size), self.world.size
        names = self.world.gather([path.name for path in store.checkpoints(part)])
        whole = [name for name in names[0] if all(name in each for each in names)]
        others = [] if any(names) else self.world.first(lambda: store.team_sizes(folder))
        if others and not quiet:
            self.say(f"the checkpoints in {folder} are of {others[-1]} worker(s), and this run has {size}: it starts from the beginning")
        if any(names) and not whole and not quiet:
            self.say(f"the checkpoints in {folder} are not used: none has the parts of all {size} workers")
        for name in whole:
            known: dict[str, Any] = {}
            try:
                known, reason = store.about(part / name, self.identity), ""
            except Unusable as error:
                reason = str(error)
            if self.agreed(part / name, reason, quiet):
                yield part / name, known

    def agreed(self, path: Path, reason: str, quiet: bool = False) -> bool:
        """False if any worker has a ``reason`` not to use its part of a checkpoint."""
        bad = next(((where, why) for where, why in self.world.gather((path, reason)) if why), None)
        if bad is not None and not quiet:
            self.say(f"the checkpoint {bad[0]} is not used: {bad[1]}")
        return bad is None

    def say(self, text: str) -> None:
        """A line on stderr, from one of the workers that share clients."""
        if self.world.rank == 0:
            print(f"fgl-bench: {text}", file=sys.stderr, flush=True)


class CheckpointCallback(StepCallback):
    """Writes checkpoints of the seeds that are trained together; created in the process that trains them."""

    def __init__(self, run: Checkpoints, scenario: object, seeds: Sequence[int]):
        self.run, self.seeds, self.world = run, tuple(seeds), run.world
        self.unit = "round" if isinstance(scenario, Rounds) else "trip"
        self.folder = store.program(run.folder, seeds)
        self.part = store.of_worker(self.folder, self.world.rank, self.world.size)
        self.lock: int | None = None
        self.held: bool | None = None  # None: not tried yet
        self.off = self.failed = False
        self.sent = self.world.sent

    def close(self) -> None:
        """Release the folder."""
        if self.lock is not None:
            os.close(self.lock)

    def simulation(self, make: Callable[[], Simulation]) -> Simulation:
        """A fresh simulation, or one that resumes from the newest usable checkpoint."""
        sim = make()
        self.sim_state = SimulationState(sim)
        if self.world.first(self.folder.is_dir) and self.locked():
            for path, known in self.run.usable(self.folder, quiet=True):
                reason = ""
                try:
                    self.sim_state.load(path / store.STATE)
                except Exception as error:  # a file may raise anything
                    reason = f"it does not fit ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
                if self.run.agreed(path, reason):
                    if self.world.size > 1:  # bytes sent while the simulation was rebuilt do not count twice
                        self.world.sent = self.sent + known["sent"]
                    break
                sim = make()
                self.sim_state = SimulationState(sim)
        self.due = time.monotonic() + self.run.interval
        self.last = time.monotonic()
        self.end = sim.rounds if self.unit == "round" else sim.trips * len(self.seeds)
        return sim

    def locked(self) -> bool:
        """Return True if only this process (and those that share its clients) writes here; reports another writer.

        Raises:
            OSError: the folder cannot be made.
        """
        if self.held is None:
            answer = self.world.first(self._lock)
            if isinstance(answer, OSError):
                raise answer
            self.held = answer
            self.off = not self.held
            if self.held:
                store.clear(self.part)
            else:
                self.run.say(f"another process keeps this run in {self.folder}; this one continues without checkpoints")
        return self.held

    def _lock(self) -> bool | OSError:
        end = time.monotonic() + PATIENCE
        while self.lock is None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:  # to be raised on every worker
                return error
            self.lock = lock(self.folder)
            if self.lock is not None and not self.folder.exists():  # removed in between
                os.close(self.lock)
                self.lock = None
            if self.lock is None and time.monotonic() > end:
                return False
            if self.lock is None:
                time.sleep(0.05)
        return True

    def step_end(self, sim: Simulation, state: ScenarioState) -> None:
        """Write a checkpoint if one is due or a process received an end signal.

        Raises:
            Stopped: it received an end signal.
            UserError: a method of the package holds something that cannot be stored.
        """
        now, done = time.monotonic(), state.done
        ends = done >= self.end and self.run.turns > 1 and now - self.last > self.run.interval / self.run.turns
        # Workers that share clients do the same: nothing, keep (1), or keep and end by a signal (its number and 1).
        asked = self.world.highest(int(now >= self.due or ends) if STOP.number is None else STOP.number + 1)
        written = asked > 0 and not self.off and self.written(state)
        if asked > 1:
            stopped = Stopped(asked - 1)
            stopped.saved = f"a checkpoint after {self.unit} {done} of {self.end}" if written else ""
            raise stopped

    def written(self, state: ScenarioState) -> bool:
        """Return True if every worker that has a part of the checkpoint could write it."""
        fault = full = ""
        try:
            if not self.locked():
                return False
            about = {"identity": self.run.identity, "seeds": list(self.seeds), "done": state.done, "of": self.end, "unit": self.unit}
            about |= {"sent": self.world.sent - self.sent, "seconds": round(self.run.earlier + time.monotonic() - self.run.begin, 3)}
            store.write(self.part, about, partial(self.sim_state.save, state.state()))
        except Unstorable as reason:
            if self.run.strict:
                raise
            fault = f"algorithm={self.run.method}: {reason} cannot be stored in a checkpoint"
        except OSError as error:
            full = f"no checkpoint in {self.part} ({error.strerror or error}); the run continues"
        finally:
            self.last = time.monotonic()
            self.due = self.last + self.run.interval
        faults, fulls = (list(filter(None, texts)) for texts in zip(*self.world.gather((fault, full)), strict=True))
        if faults and not self.sim_state.own:
            raise UserError(f"{faults[0]}; use checkpoint_minutes=null")
        if faults:
            self.run.say(f"{faults[0]}; the run continues without checkpoints")
            self.off = True
        if fulls and not self.failed:
            self.run.say(fulls[0])
        self.failed = bool(fulls)
        if not faults and not fulls:
            store.thin(self.part, state.done)  # now that all parts of the new one are there
            return True
        if not fault and not full:
            store.remove(self.part, state.done)
        return False
