"""An optimization strategy on top of a graph model: two methods as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Comparing, Federating, FinalState, Regraphing, Spending, Staging
from fgl_bench.algorithms.server_rounds import ServerRounds
from fgl_bench.engine.hooks import JointTraining, ServerAnswers, ServerNodes, TrainedScore
from fgl_bench.engine.trips import Score, Trips
from fgl_bench.errors import UserError

# What a strategy must leave to the method that it stands on: with it a method does to clients' graphs or losses what only one can do.
EXCLUSIVE: dict[str, type] = {
    "federate": Federating, "regraph": Regraphing, "warmup_rounds": ServerRounds, "local_loss": Algorithm, "stage": Staging,
    "train": JointTraining, "observe": ServerNodes, "answer": ServerAnswers, "initialize": Algorithm,
}  # fmt: skip


def passed_on(hook: str, neutral: Any = None) -> Any:
    """A hook that asks the strategy; ``neutral`` is the answer for one that has no such hook."""

    def asked(self: Composed, *arguments: Any) -> Any:
        answer = getattr(self.server, hook, None)
        return neutral if answer is None else answer(*arguments)

    return asked


def attribute(name: str) -> Any:
    """A property that is the strategy's."""
    return property(lambda self: getattr(self.server, name))


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

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.server.prepare(setting)

    def score_trained(self, score: Score, trips: Trips) -> Tensor:
        if isinstance(self.server, TrainedScore):
            return self.server.score_trained(score, trips)
        return score(trips.output.logits, trips.batch)

    unsent, refines, frozen = attribute("unsent"), attribute("refines"), attribute("frozen")
    reset_optimizer, uses_validation, own_optimizer = attribute("reset_optimizer"), attribute("uses_validation"), attribute("own_optimizer")

    check_choices = passed_on("check_choices")
    backbone = passed_on("backbone")
    optimizer = passed_on("optimizer")
    local_penalty = passed_on("local_penalty")
    correct_gradient = passed_on("correct_gradient")
    predict = passed_on("predict")
    report = passed_on("report")
    upload = passed_on("upload")
    traffic = passed_on("traffic")
    mix = passed_on("mix")
    refine = passed_on("refine")
    bytes_after = passed_on("bytes_after")
    similarity = passed_on("similarity")
    final_state = passed_on("final_state", {})
    costs = passed_on("costs", {})
    cost_history = passed_on("cost_history", {})
    exchanged = passed_on("exchanged")


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
