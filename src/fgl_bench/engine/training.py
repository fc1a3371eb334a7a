"""Client trips, batched: every replica's local epochs and both of its evaluations in one tensor program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary, proxy

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout, Layers, StepKeys, no_dropout
from fgl_bench.engine.hooks import Hooks, JointTraining, ServerAnswers, ServerNodes, TrainedScore, check_reports, check_shape
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.minibatch import Epochs, Part, order_key, part_key
from fgl_bench.engine.network import Network, node_losses
from fgl_bench.engine.random_numbers import step_key
from fgl_bench.engine.replay import Replays
from fgl_bench.engine.stacked_optimizers import Rates, StackedAdam, grouped
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import LocalStep, Score, Trips, joined
from fgl_bench.errors import UserError

CACHED = 1 << 15  # nodes of the parts of small graphs that are cached


class Trainer:
    """Trains trips of any set of replicas; owns the state of clients between trips, except their models.

    Args:
        batch, evaluation: the graphs of all B replicas as observed in training and as evaluated (often the same object).
        streams: ``[B]`` int64, the replicas' random streams.
        chunk: most replicas in one program; None means all. Results do not depend on it.
        batch_nodes: training nodes per gradient step; None means all of a client's.
        optimizer: starts the clients' optimizer, unless the method has its own (:meth:`Algorithm.optimizer`).
        replay: replay steps of all replicas as CUDA graphs, for methods whose steps allow it.
        replay_reports: also replay the trained models' scores and the reports.
        clip_gradient: largest L2 norm of a replica's gradient; None means no clipping.
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
        optimizer: Callable[[int, int, float, float, torch.dtype, torch.device], Any] = StackedAdam,
        replay: bool = False,
        replay_reports: bool = False,
        clip_gradient: float | None = None,
    ):
        self.replay, self.replay_reports = replay, replay_reports
        self._replays, self._reporting = Replays(batch.device), False
        self.batch_nodes, self.clip_gradient, self.rate = batch_nodes, clip_gradient, 1.0
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
        rates = {**self.model.rates, **dict.fromkeys(frozen, Rates(0.0, 0.0))}
        return grouped(make, self.layout, self.lr, self.weight_decay, rates)

    def set_rate(self, factor: float) -> None:
        """Train with this multiple of the learning rate from now on."""
        self.rate = factor
        self.optimizer.scale(factor)

    def remodel(self, model: Network, layout: ParameterLayout) -> None:
        """Train this network from now on, with new optimizers."""
        self.model, self.layout = model, layout
        self.optimizer = self._optimizer()
        self._replays.clear()

    def part(self, batch: Batch, rows: tuple[int, ...]) -> Batch:
        """``batch`` restricted to ``rows``. The latest parts are cached, up to two copies of the graphs, because chunks repeat every round.

        Of small graphs, more are cached: the replicas that a semi-asynchronous run trains together are some thirty different sets. Of
        graphs on disk only the last part is cached.
        """
        if rows == self.everyone:
            return batch
        most = len(rows) if batch.on_disk else max(2 * batch.size, CACHED // batch.nodes)
        part = self._parts.pop((id(batch), rows), None)
        while part is None and self._parts and sum(part.size for part in self._parts.values()) + len(rows) > most:
            self._parts.pop(next(iter(self._parts))).unload()
        part = self._parts[id(batch), rows] = part or batch.select(rows)  # now the latest
        return part

    def regraph(self, batch: Batch, evaluation: Batch) -> None:
        """Train and evaluate on these graphs from now on."""
        self.batch, self.evaluation = batch, evaluation
        self._parts.clear()
        self._replays.clear()

    def _chunks(self, rows: Sequence[int]) -> Iterator[tuple[tuple[int, ...], slice]]:
        """Yield ``rows`` in parts of at most ``chunk``, each with its slice of ``rows``."""
        for start in range(0, len(rows), self.chunk):
            yield tuple(rows[start : start + self.chunk]), slice(start, start + self.chunk)

    @property
    def validation_nodes(self) -> int:
        """Number of validation nodes in the scores of all replicas."""
        return int(self.evaluation.val.sum())

    def evaluate(self, models: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Summed validation and test scores ``[k, 2]`` of ``models [k, P]`` on the replicas' evaluation graphs."""
        chunks = self._chunks(self.everyone if rows is None else rows)
        return torch.cat([self._score(models[span], self.part(self.evaluation, chunk)) for chunk, span in chunks])

    @torch.no_grad()
    def losses(self, models: Tensor) -> Tensor:
        """Mean cross-entropy ``[B]`` of ``models [B, P]`` on the replicas' own training nodes, without dropout; 0 without such nodes."""
        losses = []
        for chunk, span in self._chunks(self.everyone):
            batch = self.part(self.batch, chunk)
            each = node_losses(self._predict(models[span], batch).flatten(0, 1), batch.labels.flatten(0, 1)).view(batch.train.shape)
            losses.append((each * batch.train).sum(1) / batch.train.sum(1).clamp(min=1))
        return torch.cat(losses)

    def finished(self, models: Tensor) -> Iterator[Trips]:
        """Yield finished trips with the trained models ``models [B, P]``, chunk by chunk."""
        for chunk, span in self._chunks(self.everyone):
            yield Trips(chunk, self.part(self.batch, chunk), self.model, self.layout, models[span], models[span])

    @torch.no_grad()
    def _predict(self, models: Tensor, batch: Batch) -> Tensor:
        """Return the logits ``[k, n, Y]`` that clients predict with ``models [k, P]``."""
        parameters = self.layout.views(models)
        return self.algorithm.predict(self.model, parameters, batch, self.model.first(parameters, batch))

    def _score(self, models: Tensor, batch: Batch) -> Tensor:
        return self.score(self._predict(models, batch), batch)

    def trips(self, rows: Sequence[int] | None, received: Tensor, out: Tensor, *, score: bool = True, losses: bool | None = None) -> Trips:
        """Train one trip of each of ``rows`` from ``received [k, P]``, writing the trained models to ``out [k, P]``.

        ``rows`` are distinct host integers, None for every replica. ``score`` also evaluates both models of every trip; ``losses``
        also takes their training losses (None: where models are scored).
        """
        losses = score if losses is None else losses
        rows = self.everyone if rows is None else tuple(rows)
        if not rows:  # no client of this worker takes part
            return Trips(rows, self.batch, self.model, self.layout, received, out)
        parts = []
        for chunk, span in self._chunks(rows):
            trips = self._begin(chunk, received[span], out[span], losses)
            if self.joint is not None:
                self.joint.train(self, trips)
            elif self.algorithm.trains:
                for epoch in range(self.local_epochs):
                    self._epoch(trips, epoch, score)
            self._finish(trips, score)
            parts.append(trips)
        return parts[0] if len(parts) == 1 else joined(parts, rows, received, out)

    def _begin(self, rows: tuple[int, ...], received: Tensor, trained: Tensor, losses: bool) -> Trips:
        trained.copy_(received)
        trips = Trips(
            rows, self.part(self.batch, rows), self.model, self.layout, received, trained, steps=self.local_epochs, lr=self.lr * self.rate
        )
        if self.algorithm.trains and self.reset_optimizer:
            self.optimizer.reset(rows)
        if self.algorithm.trains and losses and self.joint is None:
            # Now: a small tensor allocated between large temporary ones would fragment the memory.
            trips.train_loss = torch.empty(len(rows), dtype=torch.float64, device=trained.device)
        return trips

    def _finish(self, trips: Trips, score: bool) -> None:
        """Count the trips, score the models that are not scored yet, and take the reports."""
        everyone = trips.rows == self.everyone
        self.trip.index_add_(0, trips.batch.replicas, self._once[: len(trips.rows)])
        self._done[list(trips.rows)] += 1
        evaluation = trips.batch if self.evaluation is self.batch else self.part(self.evaluation, trips.rows)
        if score and trips.received_score is None:
            trips.received_score = self._score(trips.received, evaluation)
        end = partial(_end, evaluation=evaluation, score=score)
        if self.replay_reports and everyone and (score or self._reporting):  # CUDA refuses to capture an empty graph
            trips.trained_score, trips.reports = self._replay(("end", score), trips, end)
        else:
            trips.trained_score, trips.reports = end(self, trips)
        check_reports(trips.reports, len(trips.rows))
        self._reporting = bool(trips.reports)

    def _epoch(self, trips: Trips, epoch: int, score: bool) -> None:
        """One step on all of every client's training nodes, or a pass over them in mini-batches.

        Sets the training losses in the last epoch, and in the first the received models' scores if ``score`` and a step can give them.
        """
        score = score and epoch == 0 and self.evaluation is self.batch
        loss = trips.train_loss if epoch + 1 == self.local_epochs else None
        everyone = trips.rows == self.everyone
        if self.replay and everyone and self.batch_nodes is None:
            step = partial(_step_by_trip, epoch=epoch, score=score, losses=loss is not None)
            scored, lost = self._replay(("step", epoch, score, loss is not None), trips, step)
            if loss is not None:
                loss.copy_(lost)
        else:
            key, layers = self._keys.step(trips.rows, slice(None) if everyone else trips.batch.replicas, self._done, epoch)
            if self.batch_nodes is not None:
                self._mini_batches(trips, key, epoch, loss)
                return
            scored = self._step(trips, trips.batch, key, epoch, score, loss, layers)
        if score:
            trips.received_score = scored

    def _mini_batches(self, trips: Trips, key: Tensor, epoch: int, loss: Tensor | None) -> None:
        """One pass over every client's training nodes; their mean loss goes to ``loss [k]``."""
        batch = trips.batch
        if batch not in self._epochs:
            self._epochs[batch] = Epochs(batch, cast(int, self.batch_nodes))
        epochs = self._epochs[batch]
        order = epochs.order(batch, order_key(key))
        trips.steps = epochs.taken * self.local_epochs
        mean = None if loss is None else torch.empty_like(loss)
        if loss is not None:
            loss.zero_()
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

        The training losses are written to ``loss [k]``, if requested.
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
        self._descend(step, torch.autograd.grad(objective, list(parameters.values())))
        return scored

    @torch.no_grad()
    def _descend(self, step: LocalStep, gradients: Sequence[Tensor]) -> None:
        """Update the models ``step.theta`` from the gradients of ``step.parameters``, without frozen parameters."""
        flat = self.layout.collect(dict(zip(step.parameters, gradients, strict=True)))
        for name in self.algorithm.frozen:  # may change with the network
            self.layout.view(flat, name).zero_()
        flat = self.algorithm.correct_gradient(step, flat)
        check_shape("correct_gradient()", flat, dict(zip("kP", step.theta.shape, strict=True)), "k P")
        if self.clip_gradient is not None:
            flat.mul_((self.clip_gradient / flat.norm(dim=1, keepdim=True)).clamp(max=1))
        # A client without training nodes has no loss: it returns what it received.
        counts = step.batch.num_train
        able = None if counts.all() else np.flatnonzero(counts).tolist()
        self.optimizer.step(step.theta, flat, step.rows, able)

    def _replay(self, name: tuple, trips: Trips, function: Callable[[Trainer, Trips], Any]) -> Any:
        """Replay ``function(self, trips)`` as a CUDA graph on the tensors of its capture: every round trains models in the same memory."""
        same = replace(trips, received=trips.trained)  # the next round receives its models in another tensor; nothing here reads this one
        # The proxy avoids a reference cycle, which would keep memory.
        return self._replays((*name, trips.trained.data_ptr()), partial(function, proxy(self), same))


def _step_by_trip(trainer: Trainer, trips: Trips, epoch: int, score: bool, losses: bool) -> tuple[Tensor | None, Tensor | None]:
    """A step whose key follows from the trip numbers on the device, with its own tensor for the losses, so that it can be replayed."""
    loss = trips.trained.new_empty(len(trips.rows), dtype=torch.float64) if losses else None
    return trainer._step(trips, trips.batch, step_key(trainer.streams, trainer.trip, epoch), epoch, score, loss), loss


def _end(trainer: Trainer, trips: Trips, evaluation: Batch, score: bool) -> tuple[Tensor | None, dict[str, Tensor]]:
    """Score the trained models after the last step, if requested, and take the reports."""
    algorithm, scored = trainer.algorithm, None
    if score and (evaluation is not trips.batch or not algorithm.trains):
        scored = trainer._score(trips.trained, evaluation)
    elif score and isinstance(algorithm, TrainedScore):
        scored = algorithm.score_trained(trainer.score, trips)
    elif score:  # the same forward pass serves the score and the report
        scored = trainer.score(trips.output.logits, trips.batch)
    reports = algorithm.report(trips)
    trips.__dict__.pop("output", None)
    return scored, reports


class ServerTrainer(Trainer):
    """Scores models on the servers' graphs.

    * *received* is the server's model, scored once per seed for all its clients: the mean of what they receive, weighted by their sizes
      (their common model where they receive the same).
    * *trained* are the clients' own models. Trips do not score them; :meth:`evaluate_trained` does, in C passes over the whole graph.

    Args:
        server: the graphs of the S servers.
        weights: ``[S, C]`` sizes of the clients.
        scored: how many clients the scores of a seed are kept for; C unless their nodes are pooled.
    """

    def __init__(self, server: Batch, weights: Tensor, scored: int, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self.server, self.seeds, self.scored = server, len(weights), scored
        self.shares = (weights / weights.sum(1, keepdim=True)).to(server.dtype)

    @property
    def validation_nodes(self) -> int:
        return int(self.server.val.sum()) * self.scored

    def server_models(self, models: Tensor) -> Tensor:
        """The servers' models ``[S, P]`` from what all clients receive, ``[B, P]``."""
        stacked = models.unflatten(0, self.shares.shape)
        if stacked.stride(1) == 0:
            return stacked[:, 0]
        return torch.stack([share @ each for share, each in zip(self.shares, stacked, strict=True)])

    def evaluate(self, models: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Scores ``[k, 2]``, the same for all clients of a seed; ``rows`` None stands for all clients."""
        if rows is not None:
            return super().evaluate(models, rows)
        return self._expand(self.score(self.logits(self.server_models(models)), self.server), self.everyone)

    @torch.no_grad()
    def logits(self, models: Tensor) -> Tensor:
        """Logits ``[S, N, Y]`` of ``models [S, P]`` for the servers' nodes."""
        parameters = self.layout.views(models)
        answers = self.algorithm.answer(parameters) if isinstance(self.algorithm, ServerAnswers) else None
        if answers is not None:
            return answers
        return self.algorithm.predict(self.model, parameters, self.server, self.model.first(parameters, self.server))

    def _expand(self, scores: Tensor, rows: Sequence[int]) -> Tensor:
        """``[S, 2]`` to ``[k, 2]``."""
        if rows == self.everyone:
            return scores.repeat_interleave(self.shares.shape[1], 0)
        index = put([row // self.shares.shape[1] for row in rows], scores.device)
        return scores.index_select(0, index)

    def trips(self, rows: Sequence[int] | None, received: Tensor, out: Tensor, *, score: bool = True, losses: bool | None = None) -> Trips:
        answers = self.logits(self.server_models(received)) if rows is None else None
        if answers is not None and isinstance(self.algorithm, ServerNodes):
            self.algorithm.observe(answers)
        trips = super().trips(rows, received, out, score=False, losses=score if losses is None else losses)
        if score and answers is not None:
            trips.received_score = self._expand(self.score(answers, self.server), trips.rows)
        return trips

    def evaluate_trained(self, models: Tensor) -> Tensor:
        """Scores ``[B, w]`` of all clients' trained models ``[B, P]``; those of one client of every seed at a time, to save memory."""
        each = models.unflatten(0, self.shares.shape)
        scores = [self.score(self.logits(each[:, client]), self.server) for client in range(each.shape[1])]
        return torch.stack(scores, 1).flatten(0, 1)
