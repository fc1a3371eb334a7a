"""An optimisation strategy on top of a graph model: two methods as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, Setting, Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Comparing, Federating, FinalState, Regraphing, Spending, Staging
from fgl_bench.algorithms.server_rounds import ServerRounds
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.hooks import JointTraining, ServerNodes, TrainedScore
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.trips import LocalStep, Score, Trips
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone

# What a strategy must leave to the method that it stands on: with it a method does to clients' graphs or losses what only one can do.
EXCLUSIVE: dict[str, type] = {
    "federate": Federating, "regraph": Regraphing, "warmup_rounds": ServerRounds, "local_loss": Algorithm, "stage": Staging,
    "train": JointTraining, "observe": ServerNodes, "initialize": Algorithm,
}  # fmt: skip


@dataclass
class Composed(ServerRounds, Comparing, FinalState, Spending, TrainedScore):
    """Base of graph models (FedSage+, FedGL) whose trained parameters any synchronous method may aggregate (FedGTA, table 5).

    The strategy is a whole method with its own keys, made for the model and the graphs that clients train on now: it adds its terms
    to the local objective, corrects gradients, sees what is reported, mixes, and its messages are counted. This class
    passes every hook on to it; a subclass adds its own part around these calls.

    Attributes:
        strategy: the method that aggregates; null is the model's own average (:meth:`own`).
    """

    node_batches: ClassVar[bool] = False

    strategy: ServerRounds | None

    def __post_init__(self) -> None:
        if self.strategy is not None:
            check_strategy(self.strategy)
        self.server = self.own() if self.strategy is None else self.strategy

    def own(self) -> ServerRounds:
        """The aggregation of the model's own paper."""
        return FedAvg()

    @property
    def stacks(self) -> int:
        return self.server.stacks

    @property
    def operators(self) -> int:
        return self.server.operators

    @property
    def unsent(self) -> tuple[str, ...]:
        return self.server.unsent

    @property
    def refines(self) -> bool:
        return self.server.refines

    @property
    def reset_optimizer(self) -> bool:
        return self.server.reset_optimizer

    @property
    def uses_validation(self) -> bool:
        return self.server.uses_validation

    def node_bytes(self, nodes: int, num_features: int, num_classes: int, itemsize: int) -> tuple[int, int]:
        return self.server.node_bytes(nodes, num_features, num_classes, itemsize)

    def check_choices(self, model: Backbone, split: Split) -> None:
        self.server.check_choices(model, split)

    def backbone(self, model: Backbone) -> Backbone:
        return self.server.backbone(model)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.server.prepare(setting)

    def optimizer(self, *args: Any) -> Any:
        return self.server.optimizer(*args)

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        return self.server.local_penalty(step)

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        return self.server.correct_gradient(step, gradient)

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        return self.server.predict(model, parameters, batch, first)

    def score_trained(self, score: Score, trips: Trips) -> Tensor:
        own = isinstance(self.server, TrainedScore)
        return self.server.score_trained(score, trips) if own else score(trips.output.logits, trips.batch)

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return self.server.report(trips)

    def upload(self, rows: Sequence[int], received: Tensor, trained: Tensor) -> Tensor:
        return self.server.upload(rows, received, trained)

    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        return self.server.similarity(reports) if isinstance(self.server, Comparing) else None

    def final_state(self, trips: Iterable[Trips]) -> dict[str, Tensor]:
        return self.server.final_state(trips) if isinstance(self.server, FinalState) else {}

    def costs(self) -> dict[str, list[float]]:
        return self.server.costs() if isinstance(self.server, Spending) else {}

    def cost_history(self) -> dict[str, np.ndarray]:
        return self.server.cost_history() if isinstance(self.server, Spending) else {}

    def exchanged(self) -> np.ndarray | None:
        return self.server.exchanged() if isinstance(self.server, Spending) else None

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return self.server.mix(reports, arrived)

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        return self.server.refine(previous, received, uploaded, arrived)

    def traffic(self) -> Traffic:
        return self.server.traffic()

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        return self.server.bytes_after(rounds, trips)


def check_strategy(strategy: Algorithm) -> None:
    """Raise UserError unless ``strategy`` can aggregate another method's model."""
    kind, reason = type(strategy), None
    taken = [name for name, base in EXCLUSIVE.items() if isinstance(strategy, base) and getattr(kind, name) is not getattr(base, name)]
    if not isinstance(strategy, ServerRounds):
        reason = "it is not defined for synchronous rounds"
    elif not strategy.trains:
        reason = "it trains no model"
    elif taken:
        reason = f"it has its own {taken[0]} and cannot stand on another method"
    if reason:
        raise UserError(f"algorithm.strategy={kind.__name__}: {reason}; allowed are methods such as fedavg, fedprox, moon, feddc, fedgta")
