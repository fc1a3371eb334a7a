"""D-PSGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fgl_bench.algorithms.base import Peers
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.engine.mixing import messages, metropolis, product, uniform


@dataclass
class DPSGD(Peers):
    """Decentralised parallel SGD: local steps, then averaging with the neighbors (Lian et al., NeurIPS 2017, algorithm 1).

    ``Theta <- W Theta^`` with W symmetric and doubly stochastic: 1/3 each on a ring, the default graph, and Metropolis weights
    on any undirected one, so that the mean model moves as if it were not mixed. The paper takes the gradient at the un-mixed
    model, ``Theta <- W Theta + (Theta^ - Theta)`` (``order=lian``); the federated code mixes first and trains from the mixture
    (``order=mix_train``), which is the same sequence of models as ``train_mix`` where the graph stands still, without an exchange after the
    last round. Clients use the benchmark's optimizer.

    Attributes:
        weights: ``metropolis``, or ``uniform`` over in-neighbors and itself (rows sum to one, columns need not).
        order: ``train_mix``, ``mix_train`` or ``lian``.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True

    weights: Literal["metropolis", "uniform"]
    order: Literal["train_mix", "mix_train", "lian"]

    def topology(self) -> tuple[str, int | None]:
        return "ring", None

    def exchange(self, meeting: Meeting) -> Exchange:
        adjacency = ORDERS[self.order](meeting)
        matrix = WEIGHTS[self.weights](adjacency)
        models = product(matrix, meeting.received if self.order == "lian" else meeting.uploaded, self.setting.shard)
        if self.order == "lian":
            models += meeting.trained - meeting.received
        return Exchange(models, matrix, messages(adjacency, self.traffic().bytes[0]))


def _after(meeting: Meeting) -> Tensor:
    return meeting.graph(meeting.number)


def _before(meeting: Meeting) -> Tensor:
    """Return the graph for mixing at the start of the next round; empty after the last round."""
    adjacency = meeting.graph(meeting.number + 1)
    return adjacency if meeting.number + 1 < meeting.rounds else adjacency & False


WEIGHTS = {"metropolis": metropolis, "uniform": uniform}
ORDERS = {"train_mix": _after, "mix_train": _before, "lian": _after}
