"""Optional capabilities: a method derives from a power in addition to its scenario's base; callers check with ``isinstance``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from fgl_bench.engine.hooks import JointTraining, ServerAnswers, ServerNodes, TrainedScore

if TYPE_CHECKING:
    from fgl_bench.algorithms.records import Stage
    from fgl_bench.data.graph import Federation
    from fgl_bench.engine.batch import Batch
    from fgl_bench.engine.trips import Trips


class Federating(ABC):
    """Replaces the federation before training."""

    @abstractmethod
    def federate(self, federation: Federation) -> Federation:
        """Return the federation to train, of one seed."""


class Regraphing(ABC):
    """Changes clients' graphs during a run."""

    @abstractmethod
    def regraph(self, number: int, batch: Batch, evaluation: Batch) -> tuple[Batch, Batch] | None:
        """Return new training and evaluation graphs of all B replicas before round ``number``; None keeps both."""


class Staging(ABC):
    """Changes the network that clients train during a run."""

    @abstractmethod
    def stage(self, number: int, received: Tensor) -> Stage | None:
        """Return a new network before round ``number``, given the last received models ``[B, P]``; None keeps the current network.

        Models are scored with their own network: the last received models with the old network, the trained models of the same round
        with the new one. Rounds, trips and the selection of the best point are not affected.
        """


class Comparing(ABC):
    """Compares clients on the server."""

    @abstractmethod
    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        """Return the similarity of clients, ``[S, C, C]``, for plots; None if the configuration compares nothing.

        Args:
            reports: ``[S, C, ...]`` by name, the last report of every client.
        """


class FinalState(ABC):
    """Stores a state of the clients after the last round, for plots."""

    @abstractmethod
    def final_state(self, trips: Iterable[Trips]) -> dict[str, Tensor]:
        """Return small tensors ``[B, ...]`` by name, which every run stores.

        Args:
            trips: all replicas in chunks, with their last trained models; evaluated lazily.
        """


class Spending(ABC):
    """Reports costs other than the bytes of models and reports."""

    @abstractmethod
    def costs(self) -> dict[str, list[float]]:
        """Return the costs of a finished run other than bytes, by name, for each of the S seeds."""

    def cost_history(self) -> dict[str, np.ndarray]:
        """Return cumulative costs after every round ``[S, rounds]`` by name, for costs that are known per round."""
        return {}

    def exchanged(self) -> np.ndarray | None:
        """Return the bytes ``[S, C, C]`` that client j sent to client i (row) in a finished run; None if unknown."""
        return None


POWERS = (Federating, Regraphing, Staging, Comparing, FinalState, Spending, JointTraining, TrainedScore, ServerAnswers, ServerNodes)


def federated(method: object, federations: Sequence[Federation]) -> list[Federation]:
    """Return the federations that the method trains."""
    return [method.federate(federation) for federation in federations] if isinstance(method, Federating) else list(federations)
