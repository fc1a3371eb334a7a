"""Composition of a graph model with an optimization strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, ServerRounds, Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Comparing, Federating, FinalState, Regraphing, Spending, Staging
from fgl_bench.engine.hooks import JointTraining, ServerAnswers, ServerNodes, TrainedScore
from fgl_bench.engine.trips import Score, Trips
from fgl_bench.errors import UserError

# Hooks that a strategy may not override: they change clients' graphs or losses, which is up to the graph model.
EXCLUSIVE: dict[str, type] = {
    "federate": Federating, "regraph": Regraphing, "warmup_rounds": ServerRounds, "local_loss": Algorithm, "stage": Staging,
    "train": JointTraining, "observe": ServerNodes, "answer": ServerAnswers, "initialize": Algorithm,
}  # fmt: skip


def delegated(hook: str, neutral: Any = None) -> Any:
    """Return a hook that calls the strategy's; the result is ``neutral`` if the strategy has no such hook."""

    def call(self: Composed, *arguments: Any) -> Any:
        answer = getattr(self.server, hook, None)
        return neutral if answer is None else answer(*arguments)

    return call


def attribute(name: str) -> Any:
    """Return a property that reads the strategy's attribute."""
    return property(lambda self: getattr(self.server, name))


@dataclass
class Composed(ServerRounds, Comparing, FinalState, Spending, TrainedScore):
    """Base of graph models (FedSage+, FedGL) whose trained parameters any synchronous method may aggregate (FedGTA, table 5).

    The strategy is a complete method with its own keys, prepared for the current model and graphs. It adds its terms to the local
    objective, corrects gradients, reads reports and mixes, and its messages are counted. This class delegates every hook to the
    strategy; a subclass adds its own part around these calls.

    Attributes:
        strategy: the method that aggregates; null means :meth:`own`.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    node_batches: ClassVar[bool] = False

    strategy: ServerRounds | None

    def __post_init__(self) -> None:
        if self.strategy is not None:
            check_strategy(self.strategy)
        self.server = self.own() if self.strategy is None else self.strategy

    def own(self) -> ServerRounds:
        """Return the aggregation of the model's paper."""
        return FedAvg()

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.server.prepare(setting)

    def score_trained(self, score: Score, trips: Trips) -> Tensor:
        if isinstance(self.server, TrainedScore):
            return self.server.score_trained(score, trips)
        return score(trips.output.logits, trips.batch)

    unsent, refines, frozen, predicts_alone = attribute("unsent"), attribute("refines"), attribute("frozen"), attribute("predicts_alone")
    reset_optimizer, uses_validation, own_optimizer = attribute("reset_optimizer"), attribute("uses_validation"), attribute("own_optimizer")

    check_choices = delegated("check_choices")
    backbone = delegated("backbone")
    optimizer = delegated("optimizer")
    local_penalty = delegated("local_penalty")
    correct_gradient = delegated("correct_gradient")
    predict = delegated("predict")
    report = delegated("report")
    upload = delegated("upload")
    traffic = delegated("traffic")
    mix = delegated("mix")
    refine = delegated("refine")
    bytes_after = delegated("bytes_after")
    similarity = delegated("similarity")
    final_state = delegated("final_state", {})
    costs = delegated("costs", {})
    cost_history = delegated("cost_history", {})
    exchanged = delegated("exchanged")


def check_strategy(strategy: Algorithm) -> None:
    """Raise UserError if ``strategy`` cannot aggregate another method's model."""
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
