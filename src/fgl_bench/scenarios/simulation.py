"""The state of a run of S seeds that are trained together, which a scenario drives and callbacks watch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, ServerRounds, Setting
from fgl_bench.algorithms.powers import Spending
from fgl_bench.engine.aggregators import Aggregator
from fgl_bench.engine.attacks import Forgery
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.training import ServerTrainer, Trainer
from fgl_bench.evaluation.history import Point, ScoreLog


class ScenarioState(Protocol):
    """The state of a scenario between two of its steps."""

    @property
    def done(self) -> int:
        """Rounds done; client trips of all seeds in a scenario without rounds."""

    @property
    def trips(self) -> int:
        """Client trips done, of all seeds."""

    @property
    def last(self) -> np.ndarray:
        """``[S, C]`` positions in the score log of the models that clients trained last."""

    def points(self, starts: Sequence[int]) -> list[list[Point]]:
        """The evaluation points of every seed from the numbers ``starts`` on, as far as both models are scored by now.

        Their bytes are 0: some methods know them only at the end.
        """

    def state(self) -> Any:
        """The record from which the scenario resumes (``Simulation.resumed``)."""


class StepCallback:
    """Watches a simulation, in the process that trains it. Hooks do nothing by default."""

    def step_end(self, sim: Simulation, state: ScenarioState) -> None:
        """A round, or a batch of client trips, has ended. An exception ends the simulation."""

    def train_end(self, sim: Simulation, state: ScenarioState) -> None:
        """The last models are scored."""


@dataclass
class Simulation:
    """The input of a scenario, and its results.

    Attributes:
        initial: ``[B, P]``, the common initial model of every replica of a seed.
        rounds, trips: the budget of every seed.
        numbers: the rounds that are run; where memory is measured, those in the middle are left out.
        eval_every: trips between evaluation points.
        callbacks: what watches the simulation.
        log, points: filled by the scenario; ``points[s]`` are the evaluation points of seed number s.
        losses: the log of training losses ``[., 1]``, filled by the scenario.
        mixing: trip count to ``[S, C, C]`` mixing matrices, for plots.
        similarity: trip count to ``[S, C, C]``, :meth:`Comparing.similarity`; NaN where a client has not reported yet.
        mixing_at: trip counts at which to keep both.
        resumed: the record that the scenario resumes from, :meth:`ScenarioState.state`; None if it starts.
        stands_for: client trips that a trip of one replica counts as; more than one where clients were pooled.
        metrics: number of scores of every model; the first is what models are selected by.
        validation_nodes: that the scores of all replicas count, those of other workers included.
        final_state: the result of :meth:`FinalState.final_state`, ``[S, C, ...]`` by name.
        models: of every scored model of this worker's clients, by its position in the log, the replica (of S * C), the layout and a copy
            ``[P]``, until somebody removes what is not needed; None where none are kept.
        sent: without a server, every round's bytes sent and received by each client, ``[S, C, 2]``.
        forge: replaces the models of malicious clients before they are uploaded; None without an attack on uploads.
        aggregator: makes the server's model of the uploads; None takes the method's own mean.
        rate: factor of the learning rate in every round; None means 1.
        ends: whether the round that begins is the last one; None means that all ``rounds`` are run.
        virtual_time: of the clock, after which no further round and no further upload counts.
        end: number of the rounds that are run, as far as is known.
        score_trained: evaluation points at which all trained models are scored on the servers' graphs, ``every``, ``final`` or ``never``;
            None where clients score theirs in every trip.
    """

    algorithm: Algorithm
    setting: Setting
    trainer: Trainer
    initial: Tensor
    rounds: int
    trips: int
    eval_every: int
    participation: float = 1.0
    callbacks: Sequence[StepCallback] = ()
    mixing_at: tuple[int, ...] = ()
    resumed: Any = None
    stands_for: int = 1
    metrics: int = 1
    validation_nodes: int = 1
    log: ScoreLog = field(default_factory=ScoreLog)
    losses: ScoreLog = field(default_factory=ScoreLog)
    points: list[list[Point]] = field(default_factory=list)
    mixing: dict[int, Tensor] = field(default_factory=dict)
    similarity: dict[int, Tensor] = field(default_factory=dict)
    final_state: dict[str, Tensor] = field(default_factory=dict)
    sent: list[Tensor] = field(default_factory=list)
    models: dict[int, tuple[int, ParameterLayout, Tensor]] | None = None
    forge: Forgery | None = None
    aggregator: Aggregator | None = None
    score_trained: str | None = None
    rate: Callable[[int], float] | None = None
    ends: Callable[[Simulation, ScenarioState], bool] | None = None
    virtual_time: float = math.inf
    numbers: Sequence[int] = field(init=False)
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.numbers, self.end = range(self.rounds), self.rounds
        self.losses.reserve(1, torch.float64, self.initial.device)

    def scored(self, scores: Tensor, replicas: Sequence[int] | None, models: Tensor) -> int:
        """Log ``scores [k, 2 M]`` of some replicas, by M metrics (None: all); returns the position of the first.

        Args:
            models: ``[k, P]``, theirs; of the replicas of this worker's clients only.
        """
        start = self.log.add(scores)
        if self.models is not None:
            clients = self.setting.num_clients
            own = range(clients)[self.setting.shard.own]
            rows = enumerate(range(len(scores)) if replicas is None else map(int, replicas), start)
            mine = [(position, replica) for position, replica in rows if replica % clients in own]
            for (position, replica), model in zip(mine, models, strict=True):
                self.models[position] = replica, self.trainer.layout, model.detach().clone()
        return start

    def step_end(self, state: ScenarioState) -> None:
        """Call every callback after a step of the scenario."""
        for callback in self.callbacks:
            callback.step_end(self, state)

    def train_end(self, state: ScenarioState) -> None:
        """Call every callback after the last models are scored."""
        for callback in self.callbacks:
            callback.train_end(self, state)

    @property
    def warmup_rounds(self) -> int:
        """Rounds at the start whose points are not selected."""
        return self.algorithm.warmup_rounds() if isinstance(self.algorithm, ServerRounds) else 0

    @property
    def costs(self) -> dict[str, list[float]]:
        """Costs of the finished run besides bytes, by name, for every seed."""
        return self.algorithm.costs() if isinstance(self.algorithm, Spending) else {}

    @property
    def cost_history(self) -> dict[str, np.ndarray]:
        """Those of :attr:`costs` that are known round by round, ``[S, rounds]``."""
        return self.algorithm.cost_history() if isinstance(self.algorithm, Spending) else {}

    @property
    def exchanged(self) -> np.ndarray | None:
        """Bytes ``[S, C, C]`` that client i (row) was sent by client j, where the method counts them."""
        return self.algorithm.exchanged() if isinstance(self.algorithm, Spending) else None

    def score(self, models: Tensor, trained: bool = False) -> np.ndarray:
        """Score the clients' received models ``[B, P]`` or, on servers' graphs, their ``trained`` ones.

        Returns:
            the log positions ``[S, C]``, those of other workers' clients included.
        """
        shape = len(self.setting.seeds), self.setting.num_clients
        values = cast(ServerTrainer, self.trainer).evaluate_trained(models) if trained else self.trainer.evaluate(models)
        scores = self.setting.shard.whole(values.unflatten(0, (shape[0], -1)))
        return self.scored(scores.flatten(0, 1), None, models) + np.arange(shape[0] * shape[1]).reshape(shape)

    def accuracy(self, positions: np.ndarray) -> float:
        """Pooled validation score of the models at these log positions ``[S, C]``; waits for the device."""
        return float(self.log.read(positions)[..., :: 2 * self.metrics].sum() / max(self.validation_nodes, 1))
