"""The state of a simulation between two steps: saved to a file, and loaded into a fresh simulation of the same run."""

from __future__ import annotations

import copyreg
import pickle
import pkgutil
import random
import sys
import threading
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch.serialization import default_restore_location, get_unsafe_globals_in_checkpoint, safe_globals

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.engine.batch import Batch, DenseBlocks
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.utils.sources import files_of

CONSTANT = (Batch, BlockSparse, DenseBlocks, ParameterLayout)  # never change once they are made
RESULTS = ("log", "losses", "mixing", "similarity", "sent", "models")
PACKAGES = ("fgl_bench", "torch.nn", "torch.optim", "scipy.sparse", "numpy")  # whose classes a checkpoint may name
NAMES = {
    "builtins.bool", "builtins.bytes", "builtins.dict", "builtins.float", "builtins.frozenset", "builtins.int", "builtins.list",
    "builtins.range", "builtins.slice", "builtins.str", "builtins.tuple", "collections.defaultdict", "collections.deque",
    "functools.partial", "numpy._core.multiarray._reconstruct", "numpy._core.multiarray.scalar",
    "numpy.random._pickle.__bit_generator_ctor", "numpy.random._pickle.__generator_ctor",
    "numpy.random.bit_generator.__pyx_unpickle_SeedSequence", "random.Random", "torch._C.Generator", "weakref.WeakKeyDictionary",
    "weakref.WeakValueDictionary",
}  # fmt: skip
LOADING = threading.Lock()  # the allow-list is the process's, and programs may be threads
BUILT_IN = ("torch", "math", "operator")  # modules whose built-in functions a method may hold


class Unstorable(Exception):
    """A checkpoint cannot hold an attribute; the message names it."""


class SimulationState:
    """Saves and loads the state of a simulation. Objects that a fresh simulation has (graphs, networks, settings) are saved by name.

    Args:
        sim: has not run yet.
    """

    def __init__(self, sim: Simulation):
        self.sim, self.methods = sim, dict(methods("method", sim.algorithm))
        held = {"simulation": sim, "trainer": sim.trainer, "setting": sim.setting, "model": sim.trainer.model}
        held |= {"batch": sim.trainer.batch, "evaluation": sim.trainer.evaluation, **self.methods}
        held |= {f"setting.{name}": value for name, value in vars(sim.setting).items()}
        for path, method in self.methods.items():
            own = vars(method).items()
            held |= {f"{path}.{name}": value for name, value in own if name in method.rebuilt or isinstance(value, CONSTANT)}
        self.held, self.names = held, {id(value): name for name, value in held.items()}
        modules = {kind.__module__ for method in self.methods.values() for kind in type(method).__mro__}
        siblings = {path.stem for module in modules if outside(module) for path in files_of(module)}  # modules in the same folder
        self.packages = (*PACKAGES, *{module.partition(".")[0] for module in modules if outside(module)}, *siblings)

    @property
    def own(self) -> bool:
        """True for a method of the user's, False for one of the package."""
        return any(outside(kind.__module__) for kind in type(self.sim.algorithm).__mro__)

    def state(self, record: Any) -> dict[str, dict[str, Any]]:
        """Differences from a fresh simulation, by owner and attribute; ``record`` is :meth:`ScenarioState.state`."""
        sim, carried = self.sim, {}
        for path, method in self.methods.items():
            carried[path] = {name: value for name, value in vars(method).items() if name not in method.rebuilt}
        carried["trainer"] = {name: getattr(sim.trainer, name) for name in sim.trainer.carried}
        carried["results"] = {name: getattr(sim, name) for name in RESULTS}
        carried["scenario"] = {"record": record}
        # A user's method may draw from the shared generators.
        carried["draws"] = {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}  # noqa: NPY002
        return carried

    def save(self, record: Any, path: Path) -> None:
        """Write the state to a file; ``record`` is the scenario's.

        Raises:
            Unstorable: an attribute cannot be saved, or could not be loaded.
            OSError: the file cannot be written.
        """
        state = self.state(record)
        try:
            with path.open("w+b") as file:
                self._write(state, file)
        except OSError:
            raise
        except Exception as error:  # pickle raises errors of many kinds, and torch hides those of the disk
            culprit = self._culprit(state)
            raise OSError(str(error)) if culprit is None else Unstorable(culprit) from error

    def load(self, path: Path) -> None:
        """Put a saved state into the simulation, whose ``resumed`` is then the scenario's record.

        Raises:
            Exception: of any kind, if the file does not fit; the simulation is of no use then.
        """
        sim, device = self.sim, str(self.sim.initial.device)
        with path.open("rb") as file, LOADING, safe_globals(self._allowed(file)):
            file.seek(0)
            state = torch.load(
                file,
                weights_only=True,
                map_location=lambda storage, where: default_restore_location(storage, "cpu" if where == "cpu" else device),
            )
        for name, method in self.methods.items():
            for gone in vars(method).keys() - state[name].keys() - set(method.rebuilt):
                delattr(method, gone)
            vars(method).update(state[name])
        vars(sim.trainer).update(state["trainer"])
        vars(sim).update(state["results"])
        torch.set_rng_state(state["draws"]["torch"])
        np.random.set_state(state["draws"]["numpy"])  # noqa: NPY002
        random.setstate(state["draws"]["python"])
        sim.resumed = state["scenario"]["record"]

    def _write(self, state: Any, file: BinaryIO) -> None:
        names, packages = self.names, self.packages

        class Pickler(pickle.Pickler):
            def reducer_override(self, value: Any) -> Any:
                if (name := names.get(id(value))) is not None:
                    return from_name, (name,)
                return reduced(value, packages)

        torch.save(state, file, pickle_module=types.SimpleNamespace(Pickler=Pickler, __name__="pickle"))
        file.seek(0)
        self._allowed(file)

    def _allowed(self, file: BinaryIO) -> list[Any]:
        """The classes that the file names, as pairs for ``safe_globals``; raises PicklingError if one must not be in a checkpoint."""
        own = {
            f"{__name__}.from_name": self.held.__getitem__,
            f"{__name__}.from_module": lambda module, name: function(module, name, self.packages),
        }
        pairs = [*zip(own.values(), own, strict=True), *(getattr(np.dtypes, name) for name in np.dtypes.__all__)]
        for name in get_unsafe_globals_in_checkpoint(file):
            if name not in own:
                target = pkgutil.resolve_name(name) if name in NAMES or within(name, self.packages) else None
                if name not in NAMES and not (isinstance(target, type) and within(target.__module__, self.packages)):
                    raise pickle.PicklingError(f"an object of {name}")
                pairs.append((target, name))
        return pairs

    def _culprit(self, state: dict[str, dict[str, Any]]) -> str | None:
        """The first attribute that cannot be saved, and why."""
        for owner, attributes in state.items():
            for name, value in attributes.items():
                try:
                    self._write(value, BytesIO())
                except Exception as error:
                    return f"{owner}.{name} ({error})"
        return None


def reduced(value: Any, packages: tuple[str, ...]) -> Any:
    """How pickle takes ``value`` apart, for kinds that ``torch.load(weights_only=True)`` does not put together by itself."""
    if isinstance(value, defaultdict):
        return defaultdict, (value.default_factory, dict(value))
    if isinstance(value, deque):
        return deque, (list(value), value.maxlen)
    if isinstance(value, weakref.WeakKeyDictionary | weakref.WeakValueDictionary):  # a cache
        return type(value), ()
    called = (__name__, "numpy.random._pickle")  # modules whose functions pickle calls
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType) and value.__module__ not in called:
        modules = [value.__module__] if isinstance(value, types.FunctionType) else BUILT_IN
        module = next((each for each in modules if function(each, value.__name__, packages) is value), None)
        return NotImplemented if module is None else (from_module, (module, value.__name__))
    if rebuilt := getattr(type(value), "rebuilt", ()):
        own = vars(value).items()
        attributes = {name: inner if name not in rebuilt else {} for name, inner in own if name not in rebuilt or isinstance(inner, dict)}
        return copyreg.__newobj__, (type(value),), attributes  # type: ignore[attr-defined]
    return NotImplemented


def from_name(name: str) -> Any:
    """Stands in a checkpoint for an object that the simulation holds; :meth:`SimulationState.load` looks it up instead of calling this."""
    raise pickle.UnpicklingError(f"{name} is an object of a simulation; SimulationState.load reads it")


def from_module(module: str, name: str) -> Any:
    """Stands in a checkpoint for a function; :meth:`SimulationState.load` looks it up instead of calling this."""
    raise pickle.UnpicklingError(f"{module}.{name} is a function; SimulationState.load reads it")


def function(module: str, name: str, packages: tuple[str, ...]) -> Any:
    """The function ``name`` of a module, None unless it is one that a method may hold."""
    target = getattr(sys.modules.get(module), name, None)
    if isinstance(target, types.FunctionType):
        return target if target.__module__ == module and within(module, packages) else None
    return target if isinstance(target, types.BuiltinFunctionType) and module in BUILT_IN else None


def within(name: str, packages: tuple[str, ...]) -> bool:
    """True if a module or a class is, or is in, one of these packages."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def outside(module: str) -> bool:
    """True for modules that are neither the package's nor of Python's library."""
    return module.partition(".")[0] not in ("fgl_bench", *sys.stdlib_module_names)


def methods(path: str, method: Algorithm) -> Iterator[tuple[str, Algorithm]]:
    """A method and those that it holds, by path."""
    yield path, method
    seen: list[Algorithm] = []
    for name, value in vars(method).items():
        if isinstance(value, Algorithm) and not any(value is other for other in seen):
            seen.append(value)
            yield from methods(f"{path}.{name}", value)
