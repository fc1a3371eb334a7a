"""An optimisation strategy on top of a graph model: two methods as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, Setting, Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.trips import LocalStep, Score, Trips
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone

# A method with hooks of these does to clients' graphs or losses what only one method can do.
EXCLUSIVE = ("federate", "regraph", "prelude", "local_loss", "stage", "train", "observe", "initialise")


@dataclass
class Composed(Algorithm):
    """Base of graph models (FedSage+, FedGL) whose trained parameters any synchronous method may aggregate (FedGTA, table 5).

    The strategy is a whole method with its own keys, made for the model and the graphs that clients train on now: it adds its terms
    to the local objective, corrects gradients, sees what is reported, mixes, and its messages are counted. This class
    passes every hook on to it; a subclass adds its own part around these calls.

    Attributes:
        strategy: the method that aggregates; null is the model's own average (:meth:`own`).
    """

    node_batches: ClassVar[bool] = False

    strategy: Algorithm | None

    def __post_init__(self) -> None:
        if self.strategy is not None:
            check_strategy(self.strategy)
        self.server = self.own() if self.strategy is None else self.strategy

    def own(self) -> Algorithm:
        """The aggregation of the model's own paper."""
        return FedAvg()

    @property
    def unsent(self) -> tuple[str, ...]:
        return self.server.unsent

    @property
    def refines(self) -> bool:
        return self.server.refines

    @property
    def begins_afresh(self) -> bool:
        return self.server.begins_afresh

    def backbone(self, model: Backbone) -> Backbone:
        return self.server.backbone(model)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.server.prepare(setting)

    def optimiser(self, *args: Any) -> Any:
        return self.server.optimiser(*args)

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        return self.server.local_penalty(step)

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        return self.server.correct_gradient(step, gradient)

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        return self.server.predict(model, parameters, batch, first)

    def score_trained(self, score: Score, trips: Trips) -> Tensor:
        return self.server.score_trained(score, trips)

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return self.server.report(trips)

    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        return self.server.similarity(reports)

    def portrait(self, trips: Iterable[Trips]) -> dict[str, Tensor]:
        return self.server.portrait(trips)

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return self.server.mix(reports, arrived)

    def refine(self, previous: Tensor, received: Tensor, trained: Tensor, arrived: Tensor) -> Tensor:
        return self.server.refine(previous, received, trained, arrived)

    def traffic(self) -> Traffic:
        return self.server.traffic()

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        return self.server.bytes_after(rounds, trips)


def check_strategy(strategy: Algorithm) -> None:
    """Raise UserError unless ``strategy`` can aggregate another method's model."""
    kind, reason = type(strategy), None
    taken = [name for name in EXCLUSIVE if getattr(kind, name) is not getattr(Algorithm, name)]
    if "sync" not in strategy.scenarios:
        reason = "it is not defined for synchronous rounds"
    elif not strategy.trains:
        reason = "it trains no model"
    elif taken:
        reason = f"it has its own {taken[0]} and cannot stand on another method"
    if reason:
        raise UserError(f"algorithm.strategy={kind.__name__}: {reason}; allowed are methods such as fedavg, fedprox, moon, feddc, fedgta")
