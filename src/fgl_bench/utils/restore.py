"""Objects put together again from what :mod:`fgl_bench.utils.capture` has made of them."""

from __future__ import annotations

import collections
import functools
import importlib
import random
import sys
import types
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from fgl_bench.utils.capture import FUNCTIONS, LINE, OWN, name_of, within
from fgl_bench.utils.given import Given


class Restore:
    """Puts objects together.

    Args:
        stored: what ``Capture.finish`` returned.
        blocks: the arrays of memory, by name.
        given: what was not stored.
        device: of tensors that were on another one than the CPU.
        packages: as for ``Capture``; no others are looked into.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, IndexError: from any call, where what was stored does not hold together.
    """

    def __init__(
        self, stored: Mapping[str, Any], blocks: Mapping[str, np.ndarray], given: Given, device: torch.device, packages: Sequence[str] = ()
    ):
        self.table, self.places, self.blocks = stored["table"], stored["places"], blocks
        self.given, self.device, self.packages = given, device, (*OWN, *packages)
        self._made: dict[int, Any] = {}
        self._memory: dict[tuple[str, str], torch.Tensor] = {}

    def of(self, stored: Any) -> Any:
        """The value that ``stored`` stands for."""
        if not isinstance(stored, dict):
            return stored
        (kind, value), *more = stored.items()
        if kind == "@":
            if value not in self._made:
                self._make(value, self.table[value])
            return self._made[value]
        if kind == "tuple":
            return tuple(self.of(inner) for inner in value)
        if kind == "number":
            return np.dtype(stored["dtype"]).type(value)
        if kind == "dtype":
            return getattr(torch, value)
        if kind == "device":
            return torch.device(value)
        if kind in ("range", "slice"):
            return {"range": range, "slice": slice}[kind](*value)
        others: dict[str, Any] = {"size": torch.Size, "numpy_dtype": np.dtype, "bytes": bytes.fromhex}
        return others[kind](value)

    def _make(self, number: int, entry: dict[str, Any]) -> None:
        """Mutable objects are known before their parts, which may hold them."""
        kind = next(iter(entry))
        if kind == "list":
            made: list[Any] = []
            self._made[number] = made
            made.extend(self.of(inner) for inner in entry["list"])
        elif kind == "dict":
            found: Any = collections.OrderedDict() if entry.get("ordered") else {}
            if "default" in entry:
                found = collections.defaultdict(self.of(entry["default"]))
            self._made[number] = found
            for key, inner in entry["dict"]:
                found[self.of(key)] = self.of(inner)
        elif kind == "object":
            self._made[number] = whole = object.__new__(self.named(entry["object"]))
            vars(whole).update(self.attributes(entry["attributes"]))
        else:
            self._made[number] = getattr(self, f"_{kind}")(entry)

    def attributes(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of an object, by name."""
        return {name: self.of(inner) for name, inner in stored.items()}

    def named(self, name: str) -> Any:
        """The class or function ``module:name``; ValueError where it is none that a run may hold."""
        module, _, path = name.partition(":")
        if module == "builtins" and path in ("bool", "int", "float", "str", "list", "dict", "set", "tuple"):
            return __builtins__[path] if isinstance(__builtins__, dict) else getattr(__builtins__, path)
        inside = within(module, self.packages)
        if not inside and module not in FUNCTIONS:
            raise ValueError(f"{name} is nothing that a run holds")
        found: Any = sys.modules.get(module) or (importlib.import_module(module) if within(module, OWN) else None)
        for part in path.split("."):
            found = getattr(found, part)
        # Neither what a module has imported from elsewhere, nor functions of torch's that read files.
        if name_of(found, self.packages) != name if inside else not isinstance(found, types.BuiltinFunctionType):
            raise ValueError(f"{name} is nothing that a run holds")
        return found

    # ---- kinds of objects; each is given its entry

    def _given(self, entry: dict[str, Any]) -> Any:
        return self.given.objects[entry["given"]]

    def _tuple(self, entry: dict[str, Any]) -> tuple:
        return tuple(self.of(inner) for inner in entry["tuple"])

    def _named(self, entry: dict[str, Any]) -> Any:
        return tuple.__new__(self.named(entry["named"]), [self.of(inner) for inner in entry["values"]])

    def _set(self, entry: dict[str, Any]) -> set:
        return {self.of(inner) for inner in entry["set"]}

    def _frozenset(self, entry: dict[str, Any]) -> frozenset:
        return frozenset(self.of(inner) for inner in entry["frozenset"])

    def _deque(self, entry: dict[str, Any]) -> collections.deque:
        return collections.deque((self.of(inner) for inner in entry["deque"]), entry["most"])

    def _function(self, entry: dict[str, Any]) -> Any:
        return self.named(entry["function"])

    def _class(self, entry: dict[str, Any]) -> Any:
        return self.named(entry["class"])

    def _bound(self, entry: dict[str, Any]) -> Any:
        return getattr(self.of(entry["bound"]), entry["name"])

    def _partial(self, entry: dict[str, Any]) -> Any:
        function, arguments, named = (self.of(part) for part in entry["partial"])
        return functools.partial(function, *arguments, **named)

    def _weak(self, entry: dict[str, Any]) -> Any:
        return {"WeakKeyDictionary": weakref.WeakKeyDictionary, "WeakValueDictionary": weakref.WeakValueDictionary}[entry["weak"]]()

    def _sparse(self, entry: dict[str, Any]) -> Any:
        kinds = {"csr_matrix": sp.csr_matrix, "csc_matrix": sp.csc_matrix, "csr_array": sp.csr_array, "csc_array": sp.csc_array}
        matrix = kinds[entry["sparse"]](tuple(self.of(part) for part in entry["parts"]), shape=tuple(entry["shape"]))
        matrix.has_sorted_indices = entry["sorted"]
        return matrix

    def _torch_generator(self, entry: dict[str, Any]) -> torch.Generator:
        made = torch.Generator(entry["device"] if entry["device"] == "cpu" else self.device)
        made.set_state(self.of(entry["torch_generator"]))
        return made

    def _numpy_generator(self, entry: dict[str, Any]) -> np.random.Generator:
        state = self.of(entry["numpy_generator"])
        kinds = {name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")}
        made = kinds[state["bit_generator"]]()
        made.state = state
        return np.random.Generator(made)

    def _random(self, entry: dict[str, Any]) -> random.Random:
        made = random.Random()
        made.setstate(self.of(entry["random"]))
        return made

    def _optimizer(self, entry: dict[str, Any]) -> torch.optim.Optimizer:
        kind: Any = getattr(torch.optim, entry["optimizer"])
        if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
            raise ValueError(f"{entry['optimizer']} is no optimizer")
        made = kind(self.of(entry["groups"]))  # type: ignore[call-arg]  # a subclass has defaults of its own
        for parameter, state in self.of(entry["states"]):
            made.state[parameter] = state
        return made

    # ---- memory

    def _tensor(self, entry: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, entry["tensor"])
        device = torch.device("cpu") if entry["device"] == "cpu" else self.device
        shape, stride = entry["shape"], entry["stride"]
        memory, start = self._at(entry, device)
        if memory is None:
            made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        else:
            made = torch.empty(0, dtype=dtype, device=device)
            made.set_(memory.untyped_storage(), (memory.storage_offset() + start) // dtype.itemsize, shape, stride)
        if entry["parameter"]:
            return torch.nn.Parameter(made, requires_grad=entry["gradient"])
        made.requires_grad_(entry["gradient"])
        if "grad" in entry:
            made.grad = self.of(entry["grad"])
        return made

    def _array(self, entry: dict[str, Any]) -> np.ndarray:
        dtype, shape, stride = np.dtype(entry["array"]), tuple(entry["shape"]), tuple(entry["stride"])
        memory, start = self._at(entry, torch.device("cpu"))
        if memory is None:
            return np.empty(shape, dtype)
        raw = memory.numpy()
        return np.ndarray(shape, dtype, buffer=raw, offset=start, strides=stride)

    def _at(self, entry: dict[str, Any], device: torch.device) -> tuple[torch.Tensor | None, int]:
        """The bytes that the elements lie in, and where among them the first one begins."""
        if "in" in entry:
            return _raw(self.given.objects[entry["in"]]), entry["from"]
        if "leaf" not in entry:
            return None, 0
        name, start, line = self.places[entry["leaf"]]
        if (name, str(device)) not in self._memory:
            stored = np.ascontiguousarray(self.blocks[name]).view(np.uint8).reshape(-1)
            room = torch.empty(len(stored) + 2 * LINE, dtype=torch.uint8)
            first = (line - room.data_ptr()) % LINE
            part = room[first : first + len(stored)]
            part.copy_(torch.from_numpy(stored))
            self._memory[name, str(device)] = part if device.type == "cpu" else part.to(device)
        return self._memory[name, str(device)], start


def _raw(leaf: torch.Tensor | np.ndarray) -> torch.Tensor:
    """The bytes of the memory that a tensor or an array lies in, from its first one on."""
    if isinstance(leaf, np.ndarray):
        leaf = torch.from_numpy(leaf)
    storage = leaf.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=leaf.device).set_(storage)[leaf.storage_offset() * leaf.element_size() :]
