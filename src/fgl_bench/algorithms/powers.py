"""What only a few methods do: a method derives from a power besides its scenario's base, and is asked with ``isinstance``."""

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
    """Clients do not stay apart: another federation is trained than the one that was prepared."""

    @abstractmethod
    def federate(self, federation: Federation) -> Federation:
        """The federation of one seed that is batched and trained."""


class Regraphing(ABC):
    """Clients' graphs change during a run."""

    @abstractmethod
    def regraph(self, number: int, batch: Batch, evaluation: Batch) -> tuple[Batch, Batch] | None:
        """Called before round ``number``: the graphs that all B replicas are trained and evaluated on from then on; None keeps both."""


class Staging(ABC):
    """Clients train another network from some round on."""

    @abstractmethod
    def stage(self, number: int, received: Tensor) -> Stage | None:
        """Called before round ``number`` with what clients received last, ``[B, P]``: another network from then on; None keeps it.

        Models are scored with the network that they belong to: what was received last with the one before, the same round's trained
        models with the new one. Rounds, trips and the selection of the best point go on as they were.
        """


class Comparing(ABC):
    """The server compares clients."""

    @abstractmethod
    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        """How alike the server takes the clients to be, ``[S, C, C]``, for plots; None where these keys compare nothing.

        Args:
            reports: ``[S, C, ...]`` by name, the last report of every client.
        """


class FinalState(ABC):
    """A finished run of rounds keeps something of its clients for plots."""

    @abstractmethod
    def final_state(self, trips: Iterable[Trips]) -> dict[str, Tensor]:
        """Tensors ``[B, ...]`` by name; little, for every run keeps them.

        Args:
            trips: chunk by chunk all replicas, with the models that they trained last; costs nothing until it is gone through.
        """


class Spending(ABC):
    """A run costs more than the bytes of models and reports."""

    @abstractmethod
    def costs(self) -> dict[str, list[float]]:
        """What a finished run has cost besides bytes, by name, for each of the S seeds."""

    def cost_history(self) -> dict[str, np.ndarray]:
        """Those of :meth:`costs` that are known round by round: what each seed has spent after every round, ``[S, rounds]``."""
        return {}

    def exchanged(self) -> np.ndarray | None:
        """Bytes ``[S, C, C]`` that client i (row) was sent by client j in a finished run; None where that is not known."""
        return None


POWERS = (Federating, Regraphing, Staging, Comparing, FinalState, Spending, JointTraining, TrainedScore, ServerAnswers, ServerNodes)


def federated(method: object, federations: Sequence[Federation]) -> list[Federation]:
    """The federations that the method trains."""
    return [method.federate(federation) for federation in federations] if isinstance(method, Federating) else list(federations)
