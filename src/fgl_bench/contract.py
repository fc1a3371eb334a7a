"""What must be true of any method, tried out on a small generated federation: ``fgl-bench check my_method.py``."""

from __future__ import annotations

import importlib
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.config import validate
from fgl_bench.engine.memory import Plan
from fgl_bench.errors import UserError
from fgl_bench.reporting.plan import Composer
from fgl_bench.reporting.progress import RunProgress
from fgl_bench.run import Outcome, prepare, simulate

SEEDS, CLIENTS, ROUNDS = (0, 1, 2), 6, 5
SMALL = (
    "dataset=csbm", "dataset.num_nodes=240", "dataset.num_edges=520", "dataset.num_features=24", "dataset.words_per_node=6",
    "dataset.num_classes=3", "model.hidden=8", f"num_clients={CLIENTS}", f"rounds={ROUNDS}", "trips=null", "local_epochs=2",
    f"seeds=[{','.join(map(str, SEEDS))}]", f"mixing_at=[{','.join(str(CLIENTS * n) for n in range(1, ROUNDS + 1))}]",
    "dtype=float64", "device=cpu", "progress=false",
)  # fmt: skip
CLOSE = 1e-9
Watched: Any = Algorithm  # the method under examination, with ears


@dataclass
class Recorded:
    """A simulation; ``trips`` are the received and trained models of every client of every seed, in order."""

    outcome: Outcome
    trips: dict[tuple[int, int], list[tuple[torch.Tensor, torch.Tensor]]]
    rows: list[torch.Tensor] = field(default_factory=list)


class Broken(AssertionError):
    """A promise that a method does not keep, in words."""


def examine(name: str, overrides: list[str]) -> int:
    """Try every promise on the method in the file ``name`` (``FILE.py`` or ``FILE.py:Class``), or on a choice of ``algorithm``.

    Returns:
        0, or 1 if one is broken; each is told in a line.

    Raises:
        UserError: there is no such method, or a key is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="fgl-bench-") as scratch:
        own = "/" in name or name.partition(":")[0].endswith(".py")
        method = load(name) if own else None
        cfg = composed(name, method, [*overrides, f"cache_dir='{scratch}'", f"results_dir='{scratch}'"])
        told = method.__name__ if method else name
        print(f"{told}: {CLIENTS} clients, {len(SEEDS)} seeds, {ROUNDS} rounds, scenario={cfg.scenario._target_.rpartition('.')[2]}")
        broken = 0
        with watched(cfg):
            first: Recorded | None = None
            for promise, words in PROMISES.items():
                try:
                    first = first or simulated(cfg)
                    promise(cfg, first)
                    print(f"  kept    {words}")
                except Broken as reason:
                    broken += 1
                    print(f"  BROKEN  {words}: {reason}")
        print(f"{told}: {'keeps all promises' if not broken else f'{broken} promise(s) broken'}")
        return int(bool(broken))


def load(name: str) -> type[Algorithm]:
    """The method in a file: the class named after a colon, else the only one that the file defines."""
    file, _, wanted = name.partition(":")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise UserError(f"{file}: there is no such file")
    sys.path.insert(0, str(path.parent))
    try:
        module = importlib.import_module(path.stem)
    except Exception as error:  # whatever a user's module raises while it is imported
        raise UserError(f"{file}: cannot be imported ({type(error).__name__}: {error})") from error
    if Path(str(module.__file__)).resolve() != path:
        raise UserError(f"{file}: another module is called {path.stem} ({module.__file__}); give the file another name")
    found = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Algorithm) and value.__module__ == module.__name__ and not inspect.isabstract(value)
    }
    if wanted and wanted not in found:
        raise UserError(f"{name}: no such method in it; it defines {', '.join(found) or 'none'}")
    if not wanted and len(found) != 1:
        raise UserError(f"{file}: defines {', '.join(found) or 'no class derived from Algorithm'}; name one as {file}:CLASS")
    return found[wanted or next(iter(found))]


def composed(name: str, method: type[Algorithm] | None, overrides: list[str]) -> DictConfig:
    """The small run's configuration; a method of one's own runs under the first scenario that it names."""
    chosen = [f"algorithm={name}"]
    if method is not None:
        chosen = ["algorithm=fedavg", f"algorithm._target_={method.__module__}.{method.__name__}"]
        overrides = [f"+{text}" if text.startswith("algorithm.") else text for text in overrides]
        if not any(text.startswith("scenario=") for text in overrides):
            chosen.append(f"scenario={method.scenarios[0]}")
    with Composer() as compose:
        cfg = compose([*chosen, *SMALL, *overrides])
        validate(cfg)
    return cfg


@contextmanager
def watched(cfg: DictConfig) -> Iterator[None]:
    """Put a subclass of the method in its place that notes every trip and every row of an average."""
    module, _, name = cfg.algorithm._target_.rpartition(".")
    method = getattr(importlib.import_module(module), name)

    class Listening(method):  # type: ignore[misc, valid-type]
        trips: Any = None
        rows: Any = None

        def report(self, done):
            for row, received, trained in zip(done.rows, done.received, done.trained, strict=True):
                seed, client = divmod(int(row), self.setting.num_clients)
                place = self.setting.seeds[seed], client
                type(self).trips.setdefault(place, []).append((received.clone(), trained.clone()))
            return super().report(done)

        def mix(self, reports, arrived):
            mixing = super().mix(reports, arrived)
            type(self).rows.append(mixing.weights.detach().clone())
            return mixing

    Listening.__name__ = method.__name__
    globals()["Watched"] = Listening
    cfg.algorithm._target_ = f"{__name__}.Watched"
    yield


def simulated(cfg: DictConfig, seeds: tuple[int, ...] = SEEDS, replicas: int | None = None) -> Recorded:
    """Run the small federation, all seeds in one program."""
    cfg = cfg.copy()
    cfg.seeds = list(seeds)
    Watched.trips, Watched.rows = {}, []
    with RunProgress("check", 1, False) as progress:
        outcome = simulate(cfg, prepare(cfg), torch.device("cpu"), progress, Plan(len(seeds), replicas))
    return Recorded(outcome, Watched.trips, Watched.rows)


# ---- the promises


def finite(cfg: DictConfig, run: Recorded) -> None:
    for (seed, client), trips in run.trips.items():
        for number, pair in enumerate(trips):
            if not all(torch.isfinite(model).all() for model in pair):
                raise Broken(f"client {client} of seed {seed} has a model that is not finite after {number + 1} trip(s)")
    if not run.trips:
        raise Broken("no client has trained")


def repeatable(cfg: DictConfig, run: Recorded) -> None:
    differ(run, simulated(cfg), 0.0, "the same run gives another model")


def alone(cfg: DictConfig, run: Recorded) -> None:
    differ(simulated(cfg, SEEDS[-1:]), run, CLOSE, "alone, the seed gives another model")


def chunked(cfg: DictConfig, run: Recorded) -> None:
    for replicas in (1, 4):
        differ(simulated(cfg, replicas=replicas), run, CLOSE, f"trained {replicas} client(s) at a time, another model comes out")


def stochastic(cfg: DictConfig, run: Recorded) -> None:
    rows = [*run.rows, *(torch.from_numpy(np.asarray(matrix)) for matrix in run.outcome.mixing.values())]
    for weights in rows:
        off = (weights.double().sum(-1) - 1).abs().max().item()
        if not off < 1e-6:
            raise Broken(f"a row of an average sums to {1 + off:.6g} or {1 - off:.6g}")
        if weights.min().item() < -1e-9:
            raise Broken(f"an average has the negative weight {weights.min().item():.3g}")


def counted(cfg: DictConfig, run: Recorded) -> None:
    mixes = any(not np.allclose(matrix, np.eye(matrix.shape[-1])) for matrix in run.outcome.mixing.values())
    for history in run.outcome.histories:
        for way in ("upload", "download"):
            count = getattr(history, way)
            if (np.diff(count) < 0).any() or (count < 0).any():
                raise Broken(f"{way}ed bytes go down: {count.tolist()}")
            if mixes and not count[-1] > 0:
                raise Broken(f"models are mixed, yet nothing is {way}ed; see traffic()")


def scored(cfg: DictConfig, run: Recorded) -> None:
    for history in run.outcome.histories:
        for model, scores in history.scores.items():
            if not np.isfinite(scores).all():
                raise Broken(f"a score of a {model} model is not finite")


def differ(some: Recorded, others: Recorded, tolerance: float, words: str) -> None:
    """Raise ``Broken`` where a trip of ``some`` is not that of ``others``."""
    for (seed, client), trips in some.trips.items():
        expected = others.trips.get((seed, client), [])
        if len(expected) != len(trips):
            raise Broken(f"{words}: client {client} of seed {seed} makes {len(trips)} trips, not {len(expected)}")
        for number, (pair, other) in enumerate(zip(trips, expected, strict=True)):
            for model, x, y in zip(("received", "trained"), pair, other, strict=True):
                off = (x - y).abs().max().item()
                if not off <= tolerance * max(1.0, y.abs().max().item()):
                    raise Broken(f"{words} (seed {seed}, client {client}, trip {number + 1}, {model}: off by {off:.2g})")


PROMISES: dict[Callable[[DictConfig, Recorded], None], str] = {
    finite: "models stay finite",
    scored: "scores are finite",
    repeatable: "a repeated run gives the same numbers",
    alone: "a seed alone equals the seed among others",
    chunked: "chunks of clients change nothing",
    stochastic: "rows of averages sum to one",
    counted: "bytes are counted",
}
