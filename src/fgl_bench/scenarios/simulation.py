"""The state of a run of S seeds that are trained together; a scenario drives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, Setting
from fgl_bench.algorithms.powers import Spending
from fgl_bench.algorithms.server_rounds import ServerRounds
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.served import ServedTrainer
from fgl_bench.engine.training import Trainer
from fgl_bench.evaluation.history import Point, ScoreLog


def _silent(trips: int, accuracy: Callable[[], float]) -> None:
    pass


def _unkept(done: int, record: Callable[[], Any]) -> None:
    pass


def _unsettled() -> None:
    pass


def _none(starts: Sequence[int]) -> list[list[Point]]:
    return [[] for _ in starts]


@dataclass
class Simulation:
    """The input of a scenario, and its results.

    Attributes:
        initial: ``[B, P]``, the common initial model of every replica of a seed.
        rounds, trips: the budget of every seed.
        numbers: the rounds that are run; where memory is measured, those in the middle are left out.
        eval_every: trips between evaluation points.
        progress: called with the trips done (of all seeds) and a function that reads the current pooled validation accuracy.
        log, points: filled by the scenario; ``points[s]`` are the evaluation points of seed number s.
        losses: the log of training losses ``[., 1]``, filled by the scenario.
        scored_points: set by the scenario; the points of every seed from a number on, as far as both models are scored in the log by
            now. Their bytes are 0: some methods know them only at the end.
        mixing: trip count to ``[S, C, C]`` mixing matrices, for plots.
        similarity: trip count to ``[S, C, C]``, :meth:`Comparing.similarity`; NaN where a client has not reported yet.
        mixing_at: trip counts at which to keep both.
        keep: called after every step of the scenario with the number of rounds or trips done, and a function that returns the scenario's
            record, from which it can resume.
        settle: called before ``keep``; removes models that are not needed.
        resumed: such a record, if the run resumes; else None.
        stands_for: client trips that a trip of one replica counts as; more than one where clients were pooled.
        metrics: number of scores of every model; the first is what models are selected by.
        validation_nodes: that the scores of all replicas count, those of other workers included.
        final_state: the result of :meth:`FinalState.final_state`, ``[S, C, ...]`` by name.
        models: of every scored model of this worker's clients, by its position in the log, the replica (of S * C), the layout and a copy
            ``[P]``, until somebody removes what is not needed; None where none are kept.
        sent: without a server, every round's bytes sent and received by each client, ``[S, C, 2]``.
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
    progress: Callable[[int, Callable[[], float]], None] = _silent
    mixing_at: tuple[int, ...] = ()
    keep: Callable[[int, Callable[[], Any]], None] = _unkept
    resumed: Any = None
    settle: Callable[[], None] = _unsettled
    stands_for: int = 1
    metrics: int = 1
    validation_nodes: int = 1
    log: ScoreLog = field(default_factory=ScoreLog)
    losses: ScoreLog = field(default_factory=ScoreLog)
    points: list[list[Point]] = field(default_factory=list)
    scored_points: Callable[[Sequence[int]], list[list[Point]]] = _none
    mixing: dict[int, Tensor] = field(default_factory=dict)
    similarity: dict[int, Tensor] = field(default_factory=dict)
    final_state: dict[str, Tensor] = field(default_factory=dict)
    sent: list[Tensor] = field(default_factory=list)
    models: dict[int, tuple[int, ParameterLayout, Tensor]] | None = None
    score_trained: str | None = None
    numbers: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = range(self.rounds)
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

    def close(self) -> None:
        """Drop the callbacks: they reference the simulation, which would stay in memory until Python collects cycles."""
        self.progress, self.keep, self.settle, self.scored_points = _silent, _unkept, _unsettled, _none

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
        found = cast(ServedTrainer, self.trainer).evaluate_trained(models) if trained else self.trainer.evaluate(models)
        scores = self.setting.shard.whole(found.unflatten(0, (shape[0], -1)))
        return self.scored(scores.flatten(0, 1), None, models) + np.arange(shape[0] * shape[1]).reshape(shape)

    def accuracy(self, positions: np.ndarray) -> float:
        """Pooled validation score of the models at these log positions ``[S, C]``; waits for the device."""
        return float(self.log.read(positions)[..., :: 2 * self.metrics].sum() / max(self.validation_nodes, 1))
