"""A CUDA device where there is none: every tensor on it says ``cuda:0``, its numbers are computed on the CPU, every ATen call is judged.

A tensor on the device is a wrapper (:class:`OnDevice`) around a CPU tensor. A dispatch mode sees every operation below autograd. It refuses
what a GPU refuses, tensors of both devices in one operation (a host scalar may take part in an element-wise one), and it counts in a
:class:`Ledger` what makes the host wait, launches, and sums of floating-point numbers whose order a GPU leaves to atomics. It needs neither
a GPU nor a CUDA build of torch.

    python -m tests.pretend_cuda algorithm=fedavg dataset=csbm_cora num_clients=20 seeds=[0,1,2,3,4] rounds=5

says what a round of such a run launches and waits for, and where. Launches are estimates: one a call, but for those of ``LAUNCHES``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import fgl_bench
from fgl_bench.config.compose import Composer
from fgl_bench.engine import random_numbers, sparse
from fgl_bench.engine.replay import WARM_UP
from fgl_bench.evaluation.history import Outcome
from fgl_bench.runner.memory import Plan
from fgl_bench.runner.program import simulate
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import RunSpec, resolve
from fgl_bench.scenarios.simulation import StepCallback

CUDA = torch.device("cuda:0")
PACKAGE = str(Path(fgl_bench.__file__).parent) + "/"

# Operations whose result, or its size, the host must know before it goes on.
WAITING = {
    "_local_scalar_dense": "item", "is_nonzero": "item", "equal": "equal", "allclose": "equal", "nonzero": "nonzero",
    "nonzero_numpy": "nonzero", "argwhere": "nonzero", "masked_select": "masked_select", "_unique2": "unique", "unique_dim": "unique",
    "unique_consecutive": "unique", "bincount": "bincount", "coalesce": "coalesce", "_coalesce": "coalesce", "to_sparse": "to_sparse",
    "_to_sparse": "to_sparse", "linalg_eigh": "eigh", "_linalg_eigh": "eigh", "linalg_eig": "eig", "linalg_svd": "svd",
    "_linalg_svd": "svd", "_linalg_check_errors": "linalg error check",
}  # fmt: skip
# Kernels that add with atomics: the sum of floating-point numbers then depends on which comes first.
ATOMIC = {"index_add", "index_add_", "scatter_add", "scatter_add_", "bincount", "histc", "put_"}
POINTWISE = {
    "add_", "addcmul", "addcmul_", "clamp", "clamp_", "copy_", "div_", "fill_", "full_like", "index_put", "index_put_", "lerp", "lerp_",
    "masked_fill", "masked_fill_", "masked_scatter", "mul_", "sub_", "where", "_foreach_add_", "_fused_adam_",
}  # fmt: skip
# Tensors in a list that one kernel takes, by the number of lists (PyTorch's MultiTensorApply.cuh, 4 KB of arguments).
MANY = {1: 96, 2: 64, 3: 48, 4: 36, 5: 30}
VIEWS = {
    "_conj", "_reshape_alias", "_unsafe_view", "alias", "as_strided", "chunk", "detach", "detach_", "diagonal", "expand", "expand_as",
    "lift_fresh", "mT", "narrow", "permute", "real", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t",
    "transpose", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as_real",
}  # fmt: skip
# Launches of a call where they are not one, counted on an H100 (torch 2.11).
COUNTED = {
    "sort": 5, "argsort": 5, "nll_loss_forward": 2, "nll_loss_backward": 2, "dot": 2, "linalg_vecdot": 2, "scatter": 2, "cumsum": 2,
    "constant_pad_nd": 2, "index_put": 3, "index_put_": 2, "select_backward": 2, "slice_backward": 2, "index_select_backward": 2,
}  # fmt: skip
# The same of others, read from the CUDA sources.
LAUNCHES = COUNTED | {
    "empty": 0, "empty_like": 0, "empty_strided": 0, "new_empty": 0, "new_empty_strided": 0, "resize_": 0, "set_": 0,
    "_local_scalar_dense": 0, "topk": 3, "nonzero": 3, "_unique2": 10, "unique_consecutive": 6, "equal": 3, "bincount": 4,
    "logsumexp": 4, "repeat_interleave": 2, "linalg_qr": 12, "geqrf": 10, "linalg_householder_product": 10,
    "_linalg_eigh": 40, "_linalg_svd": 60, "_linalg_solve_ex": 6, "linalg_inv_ex": 6, "linalg_cholesky_ex": 2, "_linalg_det": 6,
}  # fmt: skip


class DeviceMix(RuntimeError):
    """Tensors of both devices in one operation."""


class Ledger:
    """What was done on the device, round by round; round 0 is what comes before the first report of progress.

    Attributes:
        waits: by round, how often the host waited, by (what for, which function of the package).
        launches: by round, kernels by (operation, function).
        atomics: likewise, sums of several floating-point numbers in an order that a GPU does not promise.
        first: the first steady round.
        capturing: whether a CUDA graph is being captured, where waiting is an error.
    """

    def __init__(self) -> None:
        self.first, self.capturing = 2, False
        self.waits: list[Counter[tuple[str, str]]] = []
        self.launches: list[Counter[tuple[str, str]]] = []
        self.atomics: list[Counter[tuple[str, str]]] = []
        self.turn()

    def turn(self) -> None:
        """Begin the next round."""
        for counters in (self.waits, self.launches, self.atomics):
            counters.append(Counter())

    def wait(self, reason: str) -> None:
        if self.capturing:
            raise RuntimeError(f"operation not permitted when stream is capturing: {reason}, in {where()}")
        self.waits[-1][reason, where()] += 1

    @property
    def steady(self) -> slice:
        """Rounds in which nothing is done for the first time, and nothing for the last: from ``first`` to the last but one."""
        return slice(self.first, len(self.waits) - 2) if len(self.waits) > self.first + 2 else slice(1, len(self.waits) - 1)

    def mean(self, counters: list[Counter[tuple[str, str]]]) -> dict[tuple[str, str], float]:
        """Of one of the three, the mean over the steady rounds."""
        rounds = counters[self.steady]
        return {key: count / len(rounds) for key, count in sum(rounds, Counter()).items()}


def where() -> str:
    """The innermost function of the package on the stack, ``file.py:function``."""
    frame: Any = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return "?" if frame is None else f"{frame.f_code.co_filename[len(PACKAGE) :]}:{frame.f_code.co_qualname}"


class OnDevice(torch.Tensor):
    """Python is told ``cuda:0``; C++ is told the CPU, so that neither its guards nor the autograd engine look for a driver."""

    inner: torch.Tensor
    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OnDevice:
        self = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), storage_size=inner.untyped_storage().nbytes(),
            dtype=inner.dtype, layout=inner.layout, device=inner.device, requires_grad=False,
        )  # fmt: skip
        self.inner = inner
        return self

    def __init__(self, inner: torch.Tensor) -> None: ...

    def __repr__(self) -> str:
        return f"OnDevice({self.inner!r})"

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on a pretended device's tensor outside of it")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        own = _FUNCTIONS.get(func)
        if own is not None:
            return own(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def on_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Arguments or results of an operation; lists hold no other lists."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def each(function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """``function`` of every leaf, lists as lists."""
    return [[function(x) for x in value] if isinstance(value, list | tuple) else function(value) for value in values]


def unwrapped(x: Any) -> Any:
    return x.inner if isinstance(x, OnDevice) else x


def baked(x: Any) -> Any:
    """For a capture: what is on the host goes into it as it is now."""
    return x.clone() if isinstance(x, torch.Tensor) and not isinstance(x, OnDevice) else unwrapped(x)


class Graph:
    """A CUDA graph: the operations of its capture, which are done again on the same memory. What Python did in between is not."""

    def __init__(self) -> None:
        self.operations: list[tuple[Any, list[Any], dict[str, Any], Any]] = []
        self.before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.ledger: Ledger

    def pool(self) -> Graph:
        return self

    def note(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Carry out an operation on CPU tensors; it is undone when the capture ends, since a capture runs nothing."""
        given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
        for argument in func._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                for value in leaves([given[argument.name]]):
                    whole = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
                    if whole.data_ptr() not in self.before:
                        self.before[whole.data_ptr()] = whole, whole.clone()
        result = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, result))
        return result

    def end(self) -> None:
        for whole, before in self.before.values():
            whole.copy_(before)
        self.before.clear()

    @torch.no_grad()
    def replay(self) -> None:
        self.ledger.launches[-1]["graph", where()] += 1
        with no_dispatch():
            for func, args, kwargs, results in self.operations:
                again = func(*args, **kwargs)
                for old, new in zip(leaves([results]), leaves([again]), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Device(TorchDispatchMode):
    """Carries out every operation on what the wrappers hold, and writes it into the ledger."""

    def __init__(self, ledger: Ledger):
        super().__init__()
        self.ledger, self.graph = ledger, None

    @contextmanager
    def capture(self, graph: Graph, pool: object = None) -> Iterator[None]:
        graph.ledger, self.graph, self.ledger.capturing = self.ledger, graph, True
        try:
            yield
        finally:
            self.graph, self.ledger.capturing = None, False
            graph.end()

    def to_host(self, x: torch.Tensor) -> torch.Tensor:
        self.ledger.wait("copy to host")
        return unwrapped(x.detach()).clone(memory_format=torch.preserve_format)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func.overloadpacket.__name__
        flat = [*leaves(args), *leaves(kwargs.values())]
        inside = [x for x in flat if isinstance(x, OnDevice)]
        outside = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, OnDevice)]
        device = kwargs.get("device")
        if not inside and not on_cuda(device):
            return func(*args, **kwargs)  # the host's own business
        if name == "_to_copy" and outside:
            if self.graph is not None:
                self.ledger.wait("copy from host")  # without a wait too: a replay would read memory that is something else by then
            if not (kwargs.get("non_blocking") and hasattr(args[0], "pinned")):
                self.ledger.wait("copy from host")
            self._launch(name)
            return OnDevice(func(*args, **{**kwargs, "device": torch.device("cpu")}).clone(memory_format=torch.preserve_format))
        if name == "copy_" and isinstance(args[0], OnDevice) != isinstance(args[1], OnDevice):
            self.ledger.wait("copy from host" if isinstance(args[0], OnDevice) else "copy to host")
            func(*map(unwrapped, args), **kwargs)
            return args[0]
        self._judge(func, name, args, kwargs, inside, outside)

        wrappers = {id(x.inner): x for x in inside}
        inner = unwrapped if self.graph is None else baked
        plain, named = each(inner, args), dict(zip(kwargs, each(inner, kwargs.values()), strict=True))
        if device is not None:
            named["device"] = torch.device("cpu")
        result = func(*plain, **named) if self.graph is None else self.graph.note(func, plain, named)
        if torch.Tag.inplace_view in func.tags:  # squeeze_ and the like change the wrapper's own shape as well
            with no_dispatch():
                func(*args, **kwargs)
            return args[0]
        self._count(func, name, args, inside, outside)

        def wrapped(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return wrappers[id(x)] if id(x) in wrappers else OnDevice(x)

        return tuple(each(wrapped, result)) if isinstance(result, tuple) else each(wrapped, [result])[0]

    def _judge(
        self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], inside: list[OnDevice], outside: list[torch.Tensor]
    ) -> None:
        """Whether these tensors may meet, and whether the host waits."""
        indices: list[torch.Tensor] = []
        if name in ("index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"):
            indices = [i for i in args[1] if isinstance(i, torch.Tensor)]
            if any(i.dtype in (torch.bool, torch.uint8) for i in indices):
                self.ledger.wait("mask as index")
            if not all(isinstance(i, OnDevice) for i in indices):
                self.ledger.wait("host index")
        for x in outside:
            scalar = x.ndim == 0 and (torch.Tag.pointwise in func.tags or name in POINTWISE)
            # A split fills in the gradients of unused parts with zeros: of a pretended device on the host.
            filled = name == "cat" and torch._C._current_graph_task_id() >= 0 and not x.any()
            if not scalar and not filled and not any(x is i for i in indices):
                raise DeviceMix(f"{func}: {tuple(x.shape)} {x.dtype} is on the host, others are not, in {where()}")
            if scalar and indices:  # x[index] = 0
                self.ledger.wait("copy from host")
        if name in WAITING:
            self.ledger.wait(WAITING[name])
        if name == "repeat_interleave" and kwargs.get("output_size") is None and isinstance(args[-1], OnDevice):
            self.ledger.wait("repeat_interleave")
        floating = any(x.dtype.is_floating_point for x in inside)
        if floating and name in ATOMIC and repeats(name, args):  # index_put sorts its indices first
            self.ledger.atomics[-1][name, where()] += 1
        if floating and name.startswith("scatter_reduce") and args[4] not in ("amax", "amin"):
            self.ledger.atomics[-1][name, where()] += 1

    def _count(self, func: Any, name: str, args: Sequence[Any], inside: list[OnDevice], outside: list[torch.Tensor]) -> None:
        launches = 0 if name in VIEWS or func.is_view else LAUNCHES.get(name, 1)
        if name == "cat":
            launches = -(-len(inside) // 128)
        if name == "where":  # numbers become tensors first
            launches += len(outside)
        if name.startswith(("_foreach_", "_fused_")):
            launches = many_tensors(args)
        self._launch(name, launches)

    def _launch(self, name: str, launches: int = 1) -> None:
        if launches and self.graph is None:
            self.ledger.launches[-1][name, where()] += launches


def many_tensors(args: Sequence[Any]) -> int:
    """Launches of an operation on lists of tensors: a kernel takes ``MANY`` of each list, and 320 chunks of 65,536 numbers."""
    lists = [x for x in args if isinstance(x, (list, tuple)) and x and isinstance(x[0], torch.Tensor) and x[0].ndim]
    chunks = sum(-(-x.numel() // 65536) for x in args[0])
    return max(1, -(-len(args[0]) // MANY[max(len(lists), 1)]), -(-chunks // 320))


def repeats(name: str, args: Sequence[Any]) -> bool:
    """Whether some place receives more than one number that is not zero."""
    if not name.startswith(("index_add", "scatter_add")):
        return True
    dim, index, source = args[1], unwrapped(args[2]), unwrapped(args[3])
    if not source.numel():
        return False
    if name.startswith("index_add"):
        index = index.flatten()[source.movedim(dim, 0).reshape(index.numel(), -1).ne(0).any(1)]
        return len(index.unique()) < len(index)
    places = list(torch.meshgrid(*(torch.arange(n) for n in index.shape), indexing="ij"))
    places[dim % index.ndim] = index
    used = source[tuple(slice(n) for n in index.shape)].ne(0)
    taken = torch.stack([place[used] for place in places])
    return len(taken.unique(dim=1).T) < len(taken.T)


def _to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for x in args:
        if isinstance(x, str | torch.device):
            device = torch.device(x)
        elif isinstance(x, torch.dtype):
            dtype = x
        elif isinstance(x, torch.Tensor):
            device, dtype = x.device, x.dtype
    with torch._C.DisableTorchFunctionSubclass():
        if not isinstance(self, OnDevice):
            return torch.Tensor.to(self, device=device, dtype=dtype or self.dtype)
        if device is None or on_cuda(device):
            same = dtype in (None, self.dtype) and not kwargs.get("copy")
            return self if same else torch.Tensor.to(self, dtype or self.dtype, copy=bool(kwargs.get("copy")))
    assert not self.requires_grad, "gradients of a copy to the host are not followed"
    return _host(self).to(dtype or self.dtype)


def _host(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    mode = torch.utils._python_dispatch._get_current_dispatch_mode()
    assert isinstance(mode, Device), "a pretended device's tensor is read outside of it"
    return mode.to_host(x)


def _numpy(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(f"can't convert cuda:0 device type tensor to numpy, in {where()}")


def _one_hot(labels: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """As on a GPU, which does not look whether labels are in range; where there are no classes, the host waits for the largest."""
    classes = num_classes if num_classes >= 0 else int(_host(labels).max()) + 1
    with torch._C.DisableTorchFunctionSubclass():
        return torch.zeros(*labels.shape, classes, dtype=torch.int64, device=CUDA).scatter(-1, labels[..., None], 1)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.to: _to, torch.Tensor.cpu: _host, torch.Tensor.tolist: lambda x: _host(x).tolist(), torch.Tensor.numpy: _numpy,
    torch.Tensor.__array__: _numpy, torch.Tensor.untyped_storage: lambda x: x.inner.untyped_storage(),
    torch.Tensor.cuda: lambda x, *args, **kwargs: x, torch.nn.functional.one_hot: _one_hot,
}  # fmt: skip


STREAMS = ("device", "stream", "current_stream", "Stream", "CUDAGraph", "graph")


class _Stream(nullcontext[None]):
    def wait_stream(self, other: _Stream) -> None: ...


@contextmanager
def pretended(ledger: Ledger) -> Iterator[None]:
    """Inside, ``cuda:0`` is there."""
    make, dots, pin_memory = torch.tensor, sparse.Edges.dots, torch.Tensor.pin_memory
    saved = (torch.tensor, torch.as_tensor, torch.cuda._lazy_init, torch.cuda.synchronize, torch.autograd.has_torch_function)

    def tensor(data, *, dtype=None, device=None, **more):
        made = make(data, dtype=dtype, **more)
        return made.to(device) if on_cuda(device) else made

    def as_tensor(data, dtype=None, device=None):
        if isinstance(data, torch.Tensor):
            return data.to(device=data.device if device is None else device, dtype=dtype or data.dtype)
        made = saved[1](data, dtype=dtype)
        return made.to(device) if on_cuda(device) else made

    def pinned(self):
        copy = self.clone()
        copy.pinned = True
        return copy

    def sampled(self, a, rows):
        """An SDDMM of cuSPARSE; sparse tensors are not wrapped."""
        taking_part = [isinstance(x, OnDevice) for x in (a, rows, self.into, self.source)]
        if not any(taking_part):
            return dots(self, a, rows)
        if not all(taking_part):
            raise DeviceMix(f"sampled_addmm on both devices, in {where()}")
        if not self.source.numel():
            return rows.new_zeros(len(rows), 0)
        return (a.index_select(1, self.target) * rows.index_select(1, self.source)).sum(2)

    torch.tensor, torch.as_tensor, torch.cuda._lazy_init = tensor, as_tensor, lambda: None
    torch.Tensor.pin_memory = pinned  # type: ignore[method-assign]
    torch.cuda.synchronize = lambda device: ledger.wait("synchronize")
    mode, streams = Device(ledger), {name: getattr(torch.cuda, name) for name in STREAMS}
    for name in STREAMS:
        setattr(torch.cuda, name, {"CUDAGraph": Graph, "graph": mode.capture}.get(name, lambda *args: _Stream()))
    torch.autograd.has_torch_function = lambda *args: False
    sparse.Edges.dots = sampled
    random_numbers._counters.pop(CUDA, None)
    try:
        with torch.autograd.set_multithreading_enabled(False), mode:
            yield
    finally:
        torch.tensor, torch.as_tensor, torch.cuda._lazy_init, torch.cuda.synchronize, torch.autograd.has_torch_function = saved
        sparse.Edges.dots, torch.Tensor.pin_memory = dots, pin_memory  # type: ignore[method-assign]
        for name, value in streams.items():
            setattr(torch.cuda, name, value)


class Turning(StepCallback):
    """Turns the ledger's page after every round."""

    def __init__(self, ledger: Ledger):
        self.ledger = ledger

    def step_end(self, sim: Any, state: Any) -> None:
        self.ledger.turn()


def turning(ledger: Ledger) -> Any:
    """Within it, runs turn the ledger's page instead of reporting, which waits for the device."""
    return mock.patch("fgl_bench.runner.program.Reporter", lambda *_: Turning(ledger))


def spec_of(overrides: Sequence[str]) -> RunSpec:
    compose = Composer()
    return resolve(compose(list(overrides)))


def on_cpu(spec: RunSpec, federations: Sequence[Any], chunk: int | None = None) -> Outcome:
    """All seeds in one program, ``chunk`` replicas at once, on the CPU."""
    plan, spec = Plan(len(federations), chunk), replace(spec, settings=replace(spec.settings, cuda_graphs=False))
    return simulate(spec, federations, torch.device("cpu"), plan=plan)


def on_pretended(spec: RunSpec, federations: Sequence[Any], chunk: int | None = None) -> tuple[Outcome, Ledger]:
    """The same on the pretended device."""
    ledger = Ledger()
    ledger.first += WARM_UP * spec.settings.cuda_graphs
    with pretended(ledger), turning(ledger):
        return simulate(spec, federations, CUDA, plan=Plan(len(federations), chunk)), ledger


def main() -> None:
    spec = spec_of(["device=cpu", "progress=false", "memory_budget_gb=20", *sys.argv[1:]])
    _, ledger = on_pretended(spec, prepare(spec))
    for title in ("waits", "atomics", "launches"):
        mean = ledger.mean(getattr(ledger, title))
        print(f"{title} a round: {sum(mean.values()):.1f}")
        for (what, place), count in sorted(mean.items(), key=lambda item: -item[1])[:40]:
            print(f"  {count:8.1f} {what:24} {place}")


if __name__ == "__main__":
    main()
