"""Client trips and their local steps, as the hooks of a method see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine import Float, Int
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Network, Output, client_losses, node_losses
from fgl_bench.engine.shard import Shard

MEASURED = ("received_score", "trained_score", "train_loss")
Score = Callable[[Float[Tensor, "k n Y"], Batch], Float[Tensor, "k 2M"]]  # by metric: of validation, then of test nodes


@dataclass
class LocalStep:
    """One local gradient step of k replicas, as the hooks of a method see it.

    Attributes:
        rows: replica numbers (seed * C + client).
        batch: their graphs, as observed in training.
        epoch: number of the gradient step in this trip, from 0: of the local epoch, unless epochs are gone through in mini-batches.
        parameters: the current parameters ``[k, *shape]`` that gradients are taken for.
        theta, received: ``[k, P]``, the current and the received models, without gradient.
        output: the training-mode forward pass.
        first: its part before any dropout, ``model.first(parameters, batch)``, for a method that needs another pass.
        losses: ``[T]`` cross-entropy of the training nodes in ``output``, set by :meth:`Algorithm.local_loss` where that needs it.
    """

    rows: tuple[int, ...]
    batch: Batch
    layout: ParameterLayout
    epoch: int
    parameters: dict[str, Tensor]
    theta: Float[Tensor, "k P"]
    received: Float[Tensor, "k P"]
    output: Output
    first: Tensor
    losses: Float[Tensor, " T"] | None = None

    @torch.no_grad()
    def train_loss(self) -> Float[Tensor, " k"]:
        """Mean cross-entropy of every replica's training nodes in ``output``, ``[k]`` float64, without terms that a method adds."""
        if self.losses is None:
            train = self.batch.training_nodes
            self.losses = node_losses(self.output.logits.flatten(0, 1).index_select(0, train.index), train.labels)
        return client_losses(self.losses, self.batch)


@dataclass
class Trips:
    """k finished client trips.

    Attributes:
        rows: replica numbers (seed * C + client).
        batch: their graphs, as observed in training; of trips that several chunks have put together there is none.
        received, trained: ``[k, P]`` models before and after the local epochs.
        received_score, trained_score: ``[k, 2]`` summed validation and test scores, where they were asked for.
        reports: the clients' uploads other than the model, by name, ``[k, ...]``.
        steps: gradient steps that each client took, ``[k, 1]`` where they differ.
        train_loss: ``[k]``, mean cross-entropy of every client's training nodes in the trip's last local epoch, before each step and
            in training mode (with dropout); where it was asked for and clients train.
        lr: learning rate of the trips.
    """

    rows: tuple[int, ...]
    batch: Batch
    model: Network
    layout: ParameterLayout
    received: Float[Tensor, "k P"]
    trained: Float[Tensor, "k P"]
    received_score: Float[Tensor, "k 2"] | None = None
    trained_score: Float[Tensor, "k 2"] | None = None
    reports: dict[str, Float[Tensor, "k ..."]] = field(default_factory=dict)
    steps: int | Int[Tensor, "k 1"] = 1
    train_loss: Float[Tensor, " k"] | None = None
    lr: float = 0.0

    @cached_property
    def output(self) -> Output:
        """The trained models' forward pass in evaluation mode on the observed graphs."""
        with torch.no_grad():
            parameters = self.layout.views(self.trained)
            return self.model.forward(parameters, self.batch, self.model.first(parameters, self.batch), no_dropout)


def of_all(trips: Trips, chosen: np.ndarray, shard: Shard, own: Sequence[str]) -> Trips:
    """The trips of this worker with those of the others: the scores, losses and reports of all ``chosen [S, C]`` (host bool) clients.

    ``rows`` are then the numbers of the replicas among all S * C. Models stay with the worker that trained them, and so do the reports
    ``own``.
    """
    if shard.alone:
        return trips
    measured = {("", name): value for name in MEASURED if (value := getattr(trips, name)) is not None}
    mine = shard.named(measured | {("report", name): value for name, value in trips.reports.items()}, chosen, trips.trained.device)
    stay = {key: value for key, value in mine.items() if key in [("report", name) for name in own]}
    values = shard.rows({key: value for key, value in mine.items() if key not in stay}, chosen) | stay
    return replace(
        trips,
        rows=tuple(np.flatnonzero(chosen).tolist()),
        received_score=values.get(("", "received_score")),
        trained_score=values.get(("", "trained_score")),
        train_loss=values.get(("", "train_loss")),
        reports={name: value for (kind, name), value in values.items() if kind},
    )


def joined(parts: Sequence[Trips], rows: tuple[int, ...], received: Float[Tensor, "k P"], trained: Float[Tensor, "k P"]) -> Trips:
    """The trips of several chunks as one, without a batch; ``received`` and ``trained`` hold the models of all of them."""

    def all_of(name: str) -> Tensor | None:
        each = [value for part in parts if (value := getattr(part, name)) is not None]
        return torch.cat(each) if len(each) == len(parts) else None

    first = parts[0]
    return Trips(
        rows,
        cast(Batch, None),
        first.model,
        first.layout,
        received,
        trained,
        all_of("received_score"),
        all_of("trained_score"),
        {name: torch.cat([part.reports[name] for part in parts]) for name in first.reports},
        torch.cat([part.steps for part in parts]) if isinstance(first.steps, Tensor) else first.steps,  # type: ignore[misc]
        all_of("train_loss"),
    )
