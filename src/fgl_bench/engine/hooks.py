"""What the trainer calls of a method: the hooks that every method has, and the rare ones that it asks for with ``isinstance``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.trips import LocalStep, Score, Trips


class Hooks(Protocol):
    """The part of a method that the trainer calls; :class:`~fgl_bench.algorithms.base.Algorithm` says what each hook does."""

    @property
    def trains(self) -> bool: ...

    @property
    def reset_optimizer(self) -> bool: ...

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
        """What the servers' models answer for their own nodes, ``[S, N, Y]``; called before every round."""
