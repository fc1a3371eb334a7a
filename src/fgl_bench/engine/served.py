"""Trips in a federation whose validation and test nodes a server holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.hooks import ServerAnswers, ServerNodes
from fgl_bench.engine.training import Trainer
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import Trips


class ServedTrainer(Trainer):
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

    def served(self, models: Tensor) -> Tensor:
        """The servers' models ``[S, P]`` from what all clients receive, ``[B, P]``."""
        stacked = models.unflatten(0, self.shares.shape)
        if stacked.stride(1) == 0:
            return stacked[:, 0]
        return torch.stack([share @ each for share, each in zip(self.shares, stacked, strict=True)])

    def evaluate(self, models: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Scores ``[k, 2]``, the same for all clients of a seed; ``rows`` None stands for all clients."""
        if rows is not None:
            return super().evaluate(models, rows)
        return self._expand(self.score(self.logits(self.served(models)), self.server), self.everyone)

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
        answers = self.logits(self.served(received)) if rows is None else None
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
