"""MOON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, above, at_least


@dataclass
class Moon(FedAvg):
    """FedAvg with a model-contrastive loss (Li, He & Song, CVPR 2021, eq. 3).

    ``mu`` times the mean over nodes of ``-log(e^(cos(r, r_glob)/t) / (e^(cos(r, r_glob)/t) + sum_b e^(cos(r, r_b)/t)))``. Here r is
    a node's representation before the last layer under the model in training, r_glob under the received model, and r_b under the
    client's previously trained models. References have no dropout and no gradient. A client's first trip has no previous model
    and therefore no contrastive term.

    Resolutions (OpenFGL's reading on graphs): no projection head, which would add parameters that other methods do not
    have; contrast over all nodes of the client. Of a previous model only its representations are stored.

    Attributes:
        mu: strength of the contrastive term.
        temperature: t.
        previous: number of previous models in the contrast.
        nodes: contrast over ``all`` nodes, or the ``train`` nodes.
    """

    by_clients: ClassVar[bool] = True
    node_batches: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {"mu": at_least(0), "temperature": above(0), "previous": at_least(1)}

    mu: float
    temperature: float
    previous: int
    nodes: Literal["all", "train"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self._previous: Tensor | None = None  # [B, previous, n, h] unit representations, newest first
        self._trips = torch.zeros(setting.batch.size, dtype=torch.int64, device=setting.batch.device)

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        if not self.mu or self._previous is None:
            return None
        batch = step.batch
        if step.epoch == 0:
            # The parameters are still those of the received model.
            with torch.no_grad():
                seen = self.setting.model.forward(step.parameters, batch, step.first.detach(), no_dropout).hidden
            self._references = torch.cat([_unit(seen)[:, None], self._previous[batch.replicas]], 1)
        similarity = torch.einsum("knh,kbnh->kbn", _unit(step.output.hidden), self._references) / self.temperature
        there = torch.arange(self.previous, device=batch.device) < self._trips[batch.replicas][:, None]
        negatives = similarity[:, 1:].masked_fill(~there[..., None], -torch.inf)
        positive = similarity[:, 0]
        loss = torch.cat([positive[:, None], negatives], 1).logsumexp(1) - positive
        among = NODES[self.nodes](batch).to(batch.dtype)
        return self.mu * (loss * among).sum(1) / among.sum(1).clamp(min=1)

    def report(self, trips: Trips) -> dict[str, Tensor]:
        if self.mu:
            rows, latest = trips.batch.replicas, _unit(trips.output.hidden)[:, None]
            if self._previous is None:
                self._previous = latest.new_zeros(self.setting.batch.size, self.previous, *latest.shape[2:])
            self._previous[rows] = torch.cat([latest, self._previous[rows, :-1]], 1)
            self._trips[rows] += 1
        return super().report(trips)


def _unit(x: Tensor) -> Tensor:
    """Scale rows to length one; a zero row stays zero and gets no gradient."""
    norm = x.norm(dim=-1, keepdim=True)
    return torch.where(norm > 1e-12, x / norm.clamp(min=1e-12), 0.0)


NODES = {"all": lambda batch: batch.labeled, "train": lambda batch: batch.train}
