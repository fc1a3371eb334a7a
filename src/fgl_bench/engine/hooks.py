"""The hooks of a method that the trainer calls, the rare ones that it asks for with ``isinstance``, and checks of what hooks return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.trips import LocalStep, Score, Trips
from fgl_bench.errors import UserError


class Hooks(Protocol):
    """The part of a method that the trainer calls; :class:`~fgl_bench.algorithms.base.Algorithm` says what each hook does."""

    @property
    def trains(self) -> bool: ...

    @property
    def reset_optimizer(self) -> bool: ...

    @property
    def predicts_alone(self) -> bool: ...

    @property
    def frozen(self) -> tuple[str, ...]: ...

    def optimizer(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any: ...

    def local_loss(self, step: LocalStep) -> Tensor: ...

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor: ...

    def predict(self, model: Any, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor: ...

    def report(self, trips: Trips) -> dict[str, Tensor]: ...


class JointTraining(ABC):
    """Clients exchange while they train: all train in one program, never in chunks."""

    @abstractmethod
    def train(self, trainer: Any, trips: Trips) -> None:
        """The local training of all clients together: changes ``trips.trained [B, P]`` in place; may set ``trips.train_loss [B]``."""


class TrainedScore(ABC):
    """Trained models are scored otherwise than by the logits of ``trips.output``."""

    @abstractmethod
    def score_trained(self, score: Score, trips: Trips) -> Tensor:
        """Scores ``[k, 2 M]`` of the trained models, by M metrics; ``score(logits [k, n, Y], trips.batch)`` makes them of logits."""


class ServerAnswers(ABC):
    """The servers' models answer for their own nodes in another way than by a forward pass on the whole graph (``split.test=server``)."""

    @abstractmethod
    def answer(self, parameters: Parameters) -> Tensor | None:
        """Logits ``[S, N, Y]`` of the servers' models ``[S, ...]`` by name, which only validation and test nodes need; None: as ever."""


class ServerNodes(ABC):
    """The server learns from the nodes that it holds (``split.test=server``)."""

    @abstractmethod
    def observe(self, logits: Tensor) -> None:
        """Receive the servers' outputs ``[S, N, Y]`` for their own nodes; called before every round."""


def check_shape(hook: str, value: Any, sizes: Mapping[str, int], *forms: str) -> None:
    """Raise UserError unless ``value`` is a tensor of one of the forms.

    Args:
        hook: the name of the hook, such as ``mix()``.
        sizes: the length of every named dimension.
        forms: allowed shapes, such as ``"S C C"``; a dimension is a name in ``sizes`` or a number.
    """
    allowed = [[sizes[part] if part in sizes else int(part) for part in form.split()] for form in forms]
    if isinstance(value, Tensor) and list(value.shape) in allowed:
        return
    names = " or ".join(f"[{', '.join(form.split())}]" for form in forms)
    expected = f"{names} = {' or '.join(map(str, allowed))}" if any(allowed) else "a scalar"
    raise UserError(f"{hook} returned {named(value, sizes)}; expected {expected}")


def check_like(hook: str, value: Tensor, model: Tensor) -> None:
    """Raise UserError unless ``value`` has the dtype and the device of the models."""
    if value.dtype != model.dtype or value.device != model.device:
        raise UserError(f"{hook} returned {value.dtype} on {value.device}; expected {model.dtype} on {model.device}, as the models are")


def check_kind(hook: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    """Raise UserError unless ``value`` is of this type; ``words`` describe it, such as ``a Mixing``."""
    if not isinstance(value, kind):
        raise UserError(f"{hook} returned {named(value, {})}; expected {words}")


def check_reports(reports: Any, rows: int) -> None:
    """Raise UserError unless ``reports`` are tensors by name, with a row for every trip."""
    check_kind("report()", reports, Mapping, "tensors by name, {} where a client reports nothing")
    for name, value in reports.items():
        if not isinstance(value, Tensor) or not value.ndim or len(value) != rows:
            raise UserError(f"report() returned '{name}' = {named(value, {'k': rows})}; expected a tensor with k = {rows} rows")


def named(value: Any, sizes: Mapping[str, int]) -> str:
    """``[C, C] = [6, 6]`` for a tensor whose lengths are those of different names, else its lengths; the type of anything else."""
    if value is None or not isinstance(value, Tensor):
        return "None" if value is None else f"a {type(value).__name__}"
    names = {length: name for name, length in sizes.items()}
    known = len(names) == len(sizes) and value.ndim > 0 and all(length in names for length in value.shape)
    return f"[{', '.join(names[length] for length in value.shape)}] = {list(value.shape)}" if known else f"{list(value.shape)}"
