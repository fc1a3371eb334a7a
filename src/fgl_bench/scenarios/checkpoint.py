"""The state of a simulation between two steps, taken apart for a checkpoint and put together again in a fresh one."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.engine.batch import Batch, DenseBlocks
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.utils.capture import Capture
from fgl_bench.utils.given import Given
from fgl_bench.utils.restore import Restore
from fgl_bench.utils.sources import files_of

CONSTANT = (Batch, BlockSparse, DenseBlocks, ParameterLayout)  # what nothing changes once it is made
RESULTS = ("log", "losses", "mixing", "similarity", "sent", "models")


class State:
    """What a checkpoint of ``sim`` holds; to be made before the simulation runs, and before one is resumed."""

    def __init__(self, sim: Simulation):
        self.sim = sim
        self.methods = dict(methods("method", sim.algorithm))
        roots = {"setting": sim.setting, "batch": sim.trainer.batch, "evaluation": sim.trainer.evaluation}
        for path, method in self.methods.items():
            own = {name: value for name, value in vars(method).items() if name in method.rebuilt or isinstance(value, CONSTANT)}
            roots |= {f"{path}.{name}": value for name, value in own.items()}
        self.given = Given(roots, {"trainer": sim.trainer, "simulation": sim, **self.methods})
        modules = {kind.__module__ for method in self.methods.values() for kind in type(method).__mro__}
        beside = {path.stem for module in modules if outside(module) for path in files_of(module)}  # modules in the same folder
        self.packages = tuple({module.partition(".")[0] for module in modules if outside(module)} | beside)

    @property
    def own(self) -> bool:
        """Whether the method is a user's, not the package's."""
        return any(outside(kind.__module__) for kind in type(self.sim.algorithm).__mro__)

    def capture(self, record: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """As JSON, and the blocks of memory that are part of it; these are not copies.

        Args:
            record: the scenario's.

        Raises:
            Uncaptured: something that the method holds cannot be stored.
        """
        sim, capture = self.sim, Capture(self.given, self.packages)
        stored: dict[str, Any] = {path: capture.attributes(method, path) for path, method in self.methods.items()}
        names = {path: list(vars(method)) for path, method in self.methods.items()}
        stored["trainer"] = {name: capture.of(getattr(sim.trainer, name), f"trainer.{name}") for name in sim.trainer.carried}
        stored["results"] = {name: capture.of(getattr(sim, name), name) for name in RESULTS}
        stored["scenario"] = capture.of(record, "scenario")
        shared = (torch.get_rng_state(), np.random.get_state(), random.getstate())  # noqa: NPY002 (that a method of a user's may draw from)
        stored["draws"] = [capture.of(draw, "draws") for draw in shared]
        return {"stored": stored, "names": names, **capture.finish()}, capture.blocks

    def restore(self, state: Mapping[str, Any], blocks: Mapping[str, np.ndarray]) -> None:
        """Put everything into the simulation, whose ``resumed`` is the scenario's record then.

        Raises:
            ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError: it does not fit; the simulation is of no use then.
        """
        sim, restore = self.sim, Restore(state, blocks, self.given, self.sim.initial.device, self.packages)
        stored = state["stored"]
        for path, method in self.methods.items():
            for name in set(vars(method)) - set(state["names"][path]):
                delattr(method, name)
            vars(method).update({name: value for name, value in restore.attributes(stored[path]).items() if name not in method.rebuilt})
        vars(sim.trainer).update(restore.attributes(stored["trainer"]))
        vars(sim).update(restore.attributes(stored["results"]))
        torch_draws, numpy_draws, draws = (restore.of(draw) for draw in stored["draws"])
        torch.set_rng_state(torch_draws)
        np.random.set_state(numpy_draws)  # noqa: NPY002
        random.setstate(draws)
        sim.resumed = restore.of(stored["scenario"])


def outside(module: str) -> bool:
    """Whether a module is neither the package's nor of Python's library."""
    return module.partition(".")[0] not in ("fgl_bench", *sys.stdlib_module_names)


def methods(path: str, method: Algorithm) -> Iterator[tuple[str, Algorithm]]:
    """A method and those that it holds, by path."""
    yield path, method
    seen: list[Algorithm] = []
    for name, value in vars(method).items():
        if isinstance(value, Algorithm) and not any(value is other for other in seen):
            seen.append(value)
            yield from methods(f"{path}.{name}", value)
