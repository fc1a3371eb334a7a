"""Overlap stochastic gradient push."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Peers, Setting
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.engine.mixing import messages, product, pushed


@dataclass
class OSGP(Peers):
    """Decentralized SGD over directed, possibly irregular graphs, de-biased by push-sum (Assran et al., ICML 2019, algorithms 1 and 2).

    A client keeps a numerator x_i and a weight w_i (1 at first); it trains, and is evaluated, at ``z_i = x_i / w_i``. It sends equal
    shares of both to its out-neighbors and itself, ``p_ji = 1 / (1 + out-degree of i)``: P is column-stochastic, so the numerators'
    mean evolves like FedAvg's model. With Delta the change of z by training, a round is ``x <- P x + Delta`` (``overlap``:
    shares are sent while clients train, and arrive one round later) or ``x <- P (x + Delta)``; ``w <- P w``.

    Resolutions: the one-peer directed exponential graph; Delta of all local epochs by the benchmark's optimizer, not scaled by w; w in
    float64, and always sent (4 bytes). The matrix recorded for plots is that of the de-biased models,
    ``diag(w_new)^-1 P diag(w)``, which is row-stochastic. The last round waits for all shares.

    Attributes:
        overlap: overlap training and communication.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True

    overlap: bool

    def topology(self) -> tuple[str, int | None]:
        return "one_peer_exponential", None

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.numerators: Tensor | None = None  # x, [S, C, P]
        self.shares = torch.ones_like(setting.weights)  # w, [S, C]

    def exchange(self, meeting: Meeting) -> Exchange:
        adjacency = meeting.graph(meeting.number)
        push, before = pushed(adjacency), self.shares
        x = meeting.received if self.numerators is None else self.numerators
        change = meeting.uploaded - meeting.received
        shard = self.setting.shard
        self.numerators = product(push, x, shard) + change if self.overlap else product(push, x + change, shard)
        self.shares = (push @ before[..., None])[..., 0]
        matrix = push * before[:, None] / self.shares[..., None]
        models = (self.numerators / shard.of(self.shares)[..., None]).to(x.dtype)
        return Exchange(models, matrix, messages(adjacency, self.traffic().bytes[0] + 4))
