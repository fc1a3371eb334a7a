"""Client trips, batched: every replica's local epochs and both of its evaluations in one tensor program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, proxy

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.adam import Adam
from fgl_bench.engine.answers import check_reports, check_shape
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout, Layers, StepKeys, no_dropout, step_key
from fgl_bench.engine.hooks import Hooks, JointTraining, TrainedScore
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.losses import node_losses
from fgl_bench.engine.minibatch import Epochs, Part, order_key, part_key
from fgl_bench.engine.network import Network
from fgl_bench.engine.parameter_groups import Rates, grouped
from fgl_bench.engine.replay import Replays
from fgl_bench.engine.trips import LocalStep, Score, Trips, joined
from fgl_bench.errors import UserError


class Trainer:
    """Trains trips of any set of replicas; owns the state of clients between trips, except their models.

    Args:
        batch, evaluation: the graphs of all B replicas as observed in training and as evaluated (often the same object).
        streams: ``[B]`` int64, the replicas' random streams.
        chunk: most replicas in one program; None means all. Results do not depend on it.
        batch_nodes: training nodes per gradient step; None means all of a client's.
        optimizer: starts the clients' optimizer, unless the method has its own (:meth:`Algorithm.optimizer`).
        replay: whether steps of all replicas are replayed as CUDA graphs; for methods whose steps allow it.
        replay_reports: whether the trained models' scores and the reports are, too.
    """

    carried: ClassVar[tuple[str, ...]] = ("model", "layout", "batch", "evaluation", "optimizer", "trip", "_done")  # by a checkpoint

    def __init__(
        self,
        algorithm: Hooks,
        model: Network,
        layout: ParameterLayout,
        batch: Batch,
        evaluation: Batch,
        score: Score,
        streams: Tensor,
        *,
        local_epochs: int,
        lr: float,
        weight_decay: float,
        reset_optimizer: bool = False,
        chunk: int | None = None,
        batch_nodes: int | None = None,
        optimizer: Callable[[int, int, float, float, torch.dtype, torch.device], Any] = Adam,
        replay: bool = False,
        replay_reports: bool = False,
    ):
        self.replay, self.replay_reports = replay, replay_reports
        self._replays, self._reporting = Replays(batch.device), False
        self.batch_nodes = batch_nodes
        self._epochs: WeakKeyDictionary[Batch, Epochs] = WeakKeyDictionary()
        self.algorithm, self.model, self.layout = algorithm, model, layout
        self.batch, self.evaluation, self.score = batch, evaluation, score
        self.streams, self.local_epochs = streams, local_epochs
        self.reset_optimizer, self.chunk = reset_optimizer or algorithm.reset_optimizer, chunk or batch.size
        self.joint = algorithm if isinstance(algorithm, JointTraining) else None
        if self.joint is not None:
            self.chunk = batch.size
        self.lr, self.weight_decay, self._start = lr, weight_decay, optimizer
        self.optimizer = self._optimizer()
        self.trip = torch.zeros(batch.size, dtype=torch.int64, device=batch.device)
        self._once = torch.ones_like(self.trip)
        self._done, self._keys = np.zeros(batch.size, dtype=np.int64), StepKeys(streams, local_epochs)  # the same on the host
        self.everyone = tuple(range(batch.size))
        self._parts: dict[tuple[int, tuple[int, ...]], Batch] = {}

    def _optimizer(self) -> Any:
        count = self.batch.size if self.algorithm.trains else 0  # a method that trains nothing needs no moments

        def make(size: int, lr: float, weight_decay: float) -> Any:
            rows = (count, size, lr, weight_decay, self.batch.dtype, self.batch.device)
            return self.algorithm.optimizer(*rows) or self._start(*rows)

        frozen = self.algorithm.frozen
        if unknown := [name for name in frozen if name not in self.layout.shapes]:
            raise UserError(f"frozen: the model has no parameter {unknown[0]}; it has {', '.join(self.layout.shapes)}")
        self._frozen = [slice(start := self.layout.offsets[name], start + self.layout.numel(name)) for name in frozen]
        rates = {**self.model.rates, **dict.fromkeys(frozen, Rates(0.0, 0.0))}
        return grouped(make, self.layout, self.lr, self.weight_decay, rates)

    def remodel(self, model: Network, layout: ParameterLayout) -> None:
        """Train this network from now on, with new optimizers."""
        self.model, self.layout = model, layout
        self.optimizer = self._optimizer()
        self._replays.clear()

    def part(self, batch: Batch, rows: tuple[int, ...]) -> Batch:
        """``batch`` restricted to ``rows``. The latest parts are cached, up to two copies of the graphs, because chunks repeat every round.

        Of graphs on disk only the last part is cached.
        """
        if rows == self.everyone:
            return batch
        key = (id(batch), rows)
        if key in self._parts:
            self._parts[key] = self._parts.pop(key)  # now the latest
        else:
            most = len(rows) if batch.on_disk else 2 * batch.size
            while self._parts and sum(part.size for part in self._parts.values()) + len(rows) > most:
                self._parts.pop(next(iter(self._parts))).unload()
            self._parts[key] = batch.select(rows)
        return self._parts[key]

    def regraph(self, batch: Batch, evaluation: Batch) -> None:
        """Train and evaluate on these graphs from now on."""
        self.batch, self.evaluation = batch, evaluation
        self._parts.clear()
        self._replays.clear()

    def chunks(self, rows: Sequence[int]) -> list[tuple[int, ...]]:
        return [tuple(rows[i : i + self.chunk]) for i in range(0, len(rows), self.chunk)]

    @property
    def validation_nodes(self) -> int:
        """Validation nodes that the scores of all replicas count."""
        return int(self.evaluation.val.sum())

    def evaluate(self, models: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Summed validation and test scores ``[k, 2]`` of ``models [k, P]`` on the replicas' evaluation graphs."""
        scores, done = [], 0
        for part in self.chunks(self.everyone if rows is None else rows):
            batch = self.part(self.evaluation, part)
            scores.append(self._score(models[done : done + len(part)], batch))
            done += len(part)
        return torch.cat(scores)

    @torch.no_grad()
    def losses(self, models: Tensor) -> Tensor:
        """Mean cross-entropy ``[B]`` of ``models [B, P]`` on the replicas' own training nodes, without dropout; 0 without such nodes."""
        losses, done = [], 0
        for part in self.chunks(self.everyone):
            batch, parameters = self.part(self.batch, part), self.layout.views(models[done : done + len(part)])
            logits = self.algorithm.predict(self.model, parameters, batch, self.model.first(parameters, batch))
            each = node_losses(logits.flatten(0, 1), batch.labels.flatten(0, 1)).view(batch.train.shape)
            losses.append((each * batch.train).sum(1) / batch.train.sum(1).clamp(min=1))
            done += len(part)
        return torch.cat(losses)

    def finished(self, models: Tensor) -> Iterator[Trips]:
        """``models [B, P]`` as what trips have ended with, chunk by chunk."""
        done = 0
        for part in self.chunks(self.everyone):
            trained = models[done : done + len(part)]
            yield Trips(part, self.part(self.batch, part), self.model, self.layout, trained, trained)
            done += len(part)

    @torch.no_grad()
    def _score(self, models: Tensor, batch: Batch) -> Tensor:
        parameters = self.layout.views(models)
        return self.score(self.algorithm.predict(self.model, parameters, batch, self.model.first(parameters, batch)), batch)

    def trips(self, rows: Sequence[int] | None, received: Tensor, out: Tensor, *, score: bool = True, losses: bool | None = None) -> Trips:
        """Train one trip of each of ``rows`` from ``received [k, P]``, writing the trained models to ``out [k, P]``.

        ``rows`` are distinct host integers, None for every replica. ``score`` also evaluates both models of every trip; ``losses``
        also takes their training losses (None: where models are scored).
        """
        losses = score if losses is None else losses
        rows = self.everyone if rows is None else tuple(rows)
        if not rows:  # of this worker's clients nobody takes part
            return Trips(rows, self.batch, self.model, self.layout, received, out)
        parts, done = [], 0
        for chunk in self.chunks(rows):
            span = slice(done, done + len(chunk))
            parts.append(self._chunk(chunk, received[span], out[span], score, losses))
            done += len(chunk)
        return parts[0] if len(parts) == 1 else joined(parts, rows, received, out)

    def _chunk(self, rows: tuple[int, ...], received: Tensor, trained: Tensor, score: bool, losses: bool) -> Trips:
        batch = self.part(self.batch, rows)
        evaluation = batch if self.evaluation is self.batch else self.part(self.evaluation, rows)
        index = slice(None) if rows == self.everyone else batch.replicas
        trained.copy_(received)
        trips = Trips(rows, batch, self.model, self.layout, received, trained)
        if self.reset_optimizer and self.algorithm.trains:
            self.optimizer.reset(rows)
        trips.steps = self.local_epochs
        if losses and self.algorithm.trains:
            # Now: a small tensor allocated between large temporary ones would fragment the memory.
            made = torch.zeros if self.batch_nodes is not None or self.joint is not None else torch.empty
            trips.train_loss = made(len(rows), dtype=torch.float64, device=trained.device)
        if self.joint is not None:
            self.joint.train(self, trips)
        for epoch in range(self.local_epochs if self.algorithm.trains and self.joint is None else 0):
            first = score and epoch == 0 and evaluation is batch
            loss = trips.train_loss if epoch + 1 == self.local_epochs else None
            if self.replay and rows == self.everyone and self.batch_nodes is None:
                scored = self._replayed(trips, epoch, first, loss)
            else:
                key, layers = self._keys.step(rows, index, self._done, epoch)
                if self.batch_nodes is not None:
                    self._epoch(trips, key, epoch, loss)
                    continue
                scored = self._step(trips, batch, key, epoch, first, loss, layers)
            trips.received_score = scored if epoch == 0 else trips.received_score
        if rows == self.everyone:
            self.trip += 1
        else:
            self.trip.index_add_(0, batch.replicas, self._once[: len(rows)])
        self._done[list(rows)] += 1
        if score and trips.received_score is None:
            trips.received_score = self._score(received, evaluation)
        replay = self.replay_reports and rows == self.everyone and (score or self._reporting)  # an empty graph is refused
        trips.trained_score, trips.reports = (self._replayed_end if replay else self._end)(trips, evaluation, score)
        check_reports(trips.reports, len(rows))
        self._reporting = bool(trips.reports)
        return trips

    def _end(self, trips: Trips, evaluation: Batch, score: bool) -> tuple[Tensor | None, dict[str, Tensor]]:
        """What follows the last step: the trained models' scores, where they are wanted, and the reports."""
        scored = None
        if score and (evaluation is not trips.batch or not self.algorithm.trains):
            scored = self._score(trips.trained, evaluation)
        elif score and isinstance(self.algorithm, TrainedScore):
            scored = self.algorithm.score_trained(self.score, trips)
        elif score:  # the same forward pass serves the score and the report
            scored = self.score(trips.output.logits, trips.batch)
        reports = self.algorithm.report(trips)
        trips.__dict__.pop("output", None)
        return scored, reports

    def _replayed(self, trips: Trips, epoch: int, score: bool, loss: Tensor | None) -> Tensor | None:
        """:meth:`_step` on the tensors that it was captured on: models are trained in the same place every round."""
        wanted = loss is not None

        def step(trainer: Trainer, same: Trips) -> tuple[Tensor | None, Tensor | None]:
            own = same.trained.new_empty(len(same.rows), dtype=torch.float64) if wanted else None
            return trainer._step(same, same.batch, step_key(trainer.streams, trainer.trip, epoch), epoch, score, own), own

        scored, lost = self._replay(("step", epoch, score, wanted), trips, step)
        if loss is not None:
            loss.copy_(lost)
        return scored

    def _replayed_end(self, trips: Trips, evaluation: Batch, score: bool) -> tuple[Tensor | None, dict[str, Tensor]]:
        """:meth:`_end` on the tensors that it was captured on."""
        return self._replay(("end", score), trips, lambda trainer, same: trainer._end(same, evaluation, score))

    def _replay(self, name: tuple, trips: Trips, function: Callable[[Trainer, Trips], Any]) -> Any:
        same = replace(trips, received=trips.trained)  # what was received is elsewhere in the next round; nothing here reads it
        return self._replays((*name, trips.trained.data_ptr()), partial(function, proxy(self), same))  # in no cycle that keeps memory

    def _epoch(self, trips: Trips, key: Tensor, epoch: int, loss: Tensor | None) -> None:
        """One pass over every client's training nodes in mini-batches; their mean loss goes to ``loss [k]``."""
        batch = trips.batch
        assert self.batch_nodes is not None
        if batch not in self._epochs:
            self._epochs[batch] = Epochs(batch, self.batch_nodes)
        epochs = self._epochs[batch]
        order = epochs.order(batch, order_key(key))
        trips.steps = epochs.taken * self.local_epochs
        mean = None if loss is None else torch.zeros_like(loss)
        for number in range(epochs.steps):
            part = epochs.part(batch, order, number)
            self._step(trips, part, part_key(key, number), epoch * epochs.steps + number, False, mean)
            if loss is not None and mean is not None:
                loss += mean * epochs.counts[number]
        if loss is not None:
            loss /= epochs.counts.sum(0).clamp(min=1)

    def _step(
        self, trips: Trips, batch: Batch, key: Tensor, number: int, score: bool, loss: Tensor | None, layers: Layers | None = None
    ) -> Tensor | None:
        """One gradient step on ``batch``, the trips' own or a mini-batch of it; returns the received models' scores.

        The training losses go to ``loss [k]``, where they are wanted.
        """
        theta, scored = trips.trained, None
        parameters = {name: view.detach().requires_grad_() for name, view in self.layout.views(theta).items()}
        first = self.model.first_of(parameters, batch) if isinstance(batch, Part) else self.model.first(parameters, batch)
        if score:
            with torch.no_grad():
                scored = self.score(self.algorithm.predict(self.model, parameters, batch, first.detach()), batch)
        dropout = Dropout(self.model.dropout, key, layers) if self.model.drops else no_dropout
        output = self.model.forward(parameters, batch, first, dropout)
        step = LocalStep(trips.rows, batch, self.layout, number, parameters, theta, trips.received, output, first)
        objective = self.algorithm.local_loss(step)
        check_shape("local_loss()", objective, {"k": len(theta)}, "")
        if loss is not None:
            loss.copy_(step.train_loss())
        gradients = torch.autograd.grad(objective, list(parameters.values()))
        with torch.no_grad():
            flat = self.layout.collect(dict(zip(parameters, gradients, strict=True)))
            for columns in self._frozen:
                flat[:, columns] = 0
            flat = self.algorithm.correct_gradient(step, flat)
            check_shape("correct_gradient()", flat, dict(zip("kP", theta.shape, strict=True)), "k P")
            # A client without training nodes has no loss: it returns what it received.
            able = None if batch.num_train.all() else [i for i, count in enumerate(batch.num_train) if count > 0]
            self.optimizer.step(theta, flat, trips.rows, able)
        return scored
