"""An object's state as JSON and tensors: what it is made of, whatever shares memory with what.

Objects are taken apart into their attributes; no code is stored. A table has an entry for every object that is not a plain value,
so that two names of one object stay two names of one object, and blocks of memory are stored once, with the views into them.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import importlib
import random
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from fgl_bench.utils.given import Given, Memory, memory

LINE = 64  # bytes; blocks keep their place in a cache line, on which the order of sums may depend
FUNCTIONS = ("torch", "math", "operator")  # modules whose built-in functions may be named
OWN = ("fgl_bench", "torch.nn")


class Uncaptured(Exception):
    """Something cannot be stored.

    Attributes:
        path: of it.
        what: it is, in words.
    """

    def __init__(self, path: str, what: str):
        super().__init__(f"{path} ({what})")
        self.path, self.what = path, what


def name_of(value: Any, packages: Sequence[str]) -> str | None:
    """``module:name`` of a class or function of these packages, from which :func:`restore` finds it; None where it would not."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or not within(module, packages):
        return None
    return f"{module}:{name}"


def within(module: str, packages: Sequence[str]) -> bool:
    """Whether a module is, or is in, one of these packages."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


class Capture:
    """Takes objects apart.

    Args:
        given: what need not be stored.
        packages: whose objects may be taken apart, besides the project's and torch's modules.

    Attributes:
        table: an entry for every object.
        blocks: numpy arrays of memory, by name; they are not copies.
    """

    def __init__(self, given: Given, packages: Sequence[str] = ()):
        self.given, self.packages = given, (*OWN, *packages)
        self.table: list[dict[str, Any]] = []
        self.blocks: dict[str, np.ndarray] = {}
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []  # ids are unique among what lives
        self._leaves: list[tuple[Memory, int, str, Any]] = []
        self._kinds: list[tuple[Any, Callable[[Any, str], dict[str, Any]]]] = [
            (torch.optim.Optimizer, self._optimizer),
            (torch.Tensor, self._tensor),
            (np.ndarray, self._array),
            (torch.Generator, lambda x, at: {"torch_generator": self.of(x.get_state(), at), "device": str(x.device)}),
            (np.random.Generator, lambda x, at: {"numpy_generator": self.of(x.bit_generator.state, at)}),
            (random.Random, lambda x, at: {"random": self.of(x.getstate(), at)}),
            ((weakref.WeakKeyDictionary, weakref.WeakValueDictionary), lambda x, at: {"weak": type(x).__name__}),  # a cache
            (functools.partial, lambda x, at: {"partial": [self.of(part, at) for part in (x.func, x.args, x.keywords)]}),
            (types.MethodType, lambda x, at: {"bound": self.of(x.__self__, at), "name": x.__name__}),
            ((types.FunctionType, types.BuiltinFunctionType), self._function),
            (type, self._class),
            (sp.spmatrix, self._sparse),
            (sp.sparray, self._sparse),
            (dict, self._dict),
            (tuple, self._tuple),
            (list, lambda x, at: {"list": [self.of(inner, f"{at}[{i}]") for i, inner in enumerate(x)]}),
            (collections.deque, lambda x, at: {"deque": [self.of(inner, f"{at}[{i}]") for i, inner in enumerate(x)], "most": x.maxlen}),
            ((set, frozenset), lambda x, at: {type(x).__name__: [self.of(inner, f"{at}[{i}]") for i, inner in enumerate(x)]}),
        ]

    def of(self, value: Any, at: str) -> Any:
        """What stands for ``value``, found at ``at``.

        Raises:
            Uncaptured: it cannot be stored.
        """
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is tuple and all(inner is None or type(inner) in (bool, int, float, str) for inner in value):
            return {"tuple": list(value)}
        if isinstance(value, np.generic):
            return {"number": value.item(), "dtype": value.dtype.str}
        simple = _simple(value)
        if simple is not None:
            return simple
        if id(value) not in self._known:
            self._known[id(value)] = number = len(self.table)
            self._alive.append(value)
            self.table.append({})
            self.table[number] = self._entry(value, at)
        return {"@": self._known[id(value)]}

    def _entry(self, value: Any, at: str) -> dict[str, Any]:
        path = self.given.path(value)
        if path is not None:
            return {"given": path}
        for kind, take in self._kinds:
            if isinstance(value, kind):
                return take(value, at)
        return self._object(value, at)

    # ---- kinds of objects

    def _object(self, value: Any, at: str) -> dict[str, Any]:
        name = name_of(type(value), self.packages)
        if name is None or not hasattr(value, "__dict__"):
            raise Uncaptured(at, f"an object of {type(value).__module__}.{type(value).__qualname__}")
        return {"object": name, "attributes": self.attributes(value, at)}

    def attributes(self, value: Any, at: str) -> dict[str, Any]:
        """What an object holds, without what its class says is ``rebuilt``."""
        rebuilt, found = getattr(type(value), "rebuilt", ()), {}
        for name, inner in vars(value).items():
            if name not in rebuilt:
                found[name] = self.of(inner, f"{at}.{name}")
            elif isinstance(inner, dict):
                found[name] = {"@": self._empty()}
        return found

    def _empty(self) -> int:
        self.table.append({"dict": []})
        return len(self.table) - 1

    def _dict(self, value: dict, at: str) -> dict[str, Any]:
        pairs = [[self.of(key, at), self.of(inner, f"{at}[{key!r}]")] for key, inner in value.items()]
        if isinstance(value, collections.defaultdict):
            return {"dict": pairs, "default": self.of(value.default_factory, at)}
        return {"dict": pairs, "ordered": True} if isinstance(value, collections.OrderedDict) else {"dict": pairs}

    def _tuple(self, value: tuple, at: str) -> dict[str, Any]:
        names = getattr(value, "_fields", range(len(value)))
        steps = [f".{name}" if isinstance(name, str) else f"[{name}]" for name in names]
        inner = [self.of(each, f"{at}{step}") for step, each in zip(steps, value, strict=True)]
        if type(value) is tuple:
            return {"tuple": inner}
        name = name_of(type(value), self.packages)
        if name is None:
            raise Uncaptured(at, f"an object of {type(value).__module__}.{type(value).__qualname__}")
        return {"named": name, "values": inner}

    def _function(self, value: Any, at: str) -> dict[str, Any]:
        name = name_of(value, self.packages)
        if name is None:
            builtin = isinstance(value, types.BuiltinFunctionType)
            module = next(
                (each for each in FUNCTIONS if builtin and getattr(importlib.import_module(each), value.__name__, None) is value), None
            )
            name = None if module is None else f"{module}:{value.__name__}"
        if name is None:
            raise Uncaptured(at, "a function that has no name in a module")
        return {"function": name}

    def _class(self, value: type, at: str) -> dict[str, Any]:
        name = f"builtins:{value.__name__}" if value in (bool, int, float, str, list, dict, set, tuple) else name_of(value, self.packages)
        if name is None:
            raise Uncaptured(at, f"the class {value.__module__}.{value.__qualname__}")
        return {"class": name}

    def _optimizer(self, value: torch.optim.Optimizer, at: str) -> dict[str, Any]:
        name = type(value).__name__
        if getattr(torch.optim, name, None) is not type(value):
            raise Uncaptured(at, f"the optimizer {type(value).__module__}.{name}, which is none of torch.optim")
        groups = [{key: inner for key, inner in group.items()} for group in value.param_groups]
        states = [(parameter, dict(state)) for parameter, state in value.state.items()]
        self._alive += [groups, states]
        return {"optimizer": name, "groups": self.of(groups, at), "states": self.of(states, at)}

    def _sparse(self, value: Any, at: str) -> dict[str, Any]:
        if value.format not in ("csr", "csc"):
            raise Uncaptured(at, f"a sparse matrix in the format {value.format}")
        inner = [self.of(part, at) for part in (value.data, value.indices, value.indptr)]
        return {"sparse": type(value).__name__, "parts": inner, "shape": list(value.shape), "sorted": bool(value.has_sorted_indices)}

    # ---- memory

    def _tensor(self, value: torch.Tensor, at: str) -> dict[str, Any]:
        if value.layout != torch.strided or value.is_quantized or value.is_conj() or value.is_neg():
            raise Uncaptured(at, f"a tensor of the layout {value.layout}")
        leaf = value.is_leaf and value.requires_grad
        name = str(value.dtype).removeprefix("torch.")
        entry: dict[str, Any] = {"tensor": name, "shape": list(value.shape), "stride": list(value.stride())}
        entry |= {"device": value.device.type, "gradient": leaf, "parameter": isinstance(value, torch.nn.Parameter)}
        if leaf and value.grad is not None:
            entry["grad"] = self.of(value.grad, f"{at}.grad")
        return self._leaf(entry, value.detach(), at)

    def _array(self, value: np.ndarray, at: str) -> dict[str, Any]:
        if value.dtype.hasobject:
            raise Uncaptured(at, "an array of objects")
        return self._leaf({"array": value.dtype.str, "shape": list(value.shape), "stride": list(value.strides)}, value, at)

    def _leaf(self, entry: dict[str, Any], value: Any, at: str) -> dict[str, Any]:
        where = memory(value)
        if where.low == where.high:
            return entry
        start = value.data_ptr() if isinstance(value, torch.Tensor) else value.__array_interface__["data"][0]
        holder = self.given.holder(where)
        if holder is not None:
            return entry | {"in": holder[0], "from": holder[1] + start - where.low}
        self._alive.append(value)
        self._leaves.append((where, start, at, value))
        return entry | {"leaf": len(self._leaves) - 1}

    def finish(self) -> dict[str, Any]:
        """The table and where its tensors lie, as JSON; afterwards ``blocks`` is complete."""
        places: list[Any] = [None] * len(self._leaves)
        order = sorted(range(len(places)), key=lambda i: self._leaves[i][0])
        together: list[tuple[Memory, list[int]]] = []
        for i in order:
            where = self._leaves[i][0]
            if together and together[-1][0].device == where.device and where.low < together[-1][0].high:
                before, inside = together.pop()
                together.append((before._replace(high=max(before.high, where.high)), [*inside, i]))
            else:
                together.append((where, [i]))
        for where, inside in together:
            first = min(inside)
            name, number = self._leaves[first][2], 1
            while name in self.blocks:
                number += 1
                name = f"{self._leaves[first][2]}#{number}"
            self.blocks[name] = _bytes(where, [self._leaves[i][3] for i in inside])
            for i in inside:
                places[i] = [name, self._leaves[i][1] - where.low, where.low % LINE]
        return {"table": self.table, "places": places}


def _simple(value: Any) -> dict[str, Any] | None:
    """Values without parts."""
    if isinstance(value, torch.dtype | torch.device):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, range | slice):
        return {type(value).__name__: [value.start, value.stop, value.step]}
    if isinstance(value, np.dtype):
        return {"numpy_dtype": value.str}
    return {"bytes": value.hex()} if isinstance(value, bytes) else None


def _bytes(where: Memory, leaves: Sequence[Any]) -> np.ndarray:
    """The block of memory, of the type that all who lie in it have (else bytes); on a CPU no copy."""
    types_ = {leaf.dtype for leaf in leaves}
    if where.device == "cpu":
        room: Any = (ctypes.c_uint8 * (where.high - where.low)).from_address(where.low)
        room.leaves = leaves  # whose memory it is: some are held by nobody else
        raw = np.ctypeslib.as_array(room)
    else:
        tensor = next(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        storage = tensor.untyped_storage()
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        raw = whole[where.low - storage.data_ptr() : where.high - storage.data_ptr()].cpu().numpy()
    kind = next(iter(types_))
    dtype = np.dtype(str(kind).removeprefix("torch.")) if isinstance(kind, torch.dtype) and kind != torch.bfloat16 else kind
    same = len(types_) == 1 and isinstance(dtype, np.dtype) and dtype.kind in "fiub" and dtype.isnative
    return raw.view(dtype) if same and len(raw) % dtype.itemsize == 0 else raw
