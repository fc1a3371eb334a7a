"""pFedMe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import LocalStep
from fgl_bench.errors import Range, above, at_least


@dataclass
class PFedMe(FedAvg):
    """Personal models by Moreau envelopes (Dinh, Tran, Nguyen, NeurIPS 2020, algorithm 1).

    A participant starts from the global model, ``w_i = theta_i = w``. R times it takes ``inner_steps`` steps on
    ``f_i(theta_i) + penalty/2 ||theta_i - w_i||^2`` and then moves ``w_i <- w_i - outer_lr penalty (w_i - theta_i)``. It uploads w_i;
    its trained model is theta_i. The server takes ``w <- (1 - beta) w + beta mean of w_i``.

    Resolutions: the R K steps are the ``local_epochs`` of a trip, each on all training nodes of the client (no ``batch_nodes``), so ``R =
    ceil(local_epochs / K)`` and the last outer round may be shorter. Inner steps use the benchmark's optimizer instead of plain gradient
    descent; theta_i continues across outer rounds, and the mean is weighted by size, both as in the authors' code. With
    ``local_epochs=1`` the penalty has no gradient, as in FedProx.

    Attributes:
        inner_steps: K, steps per outer round.
        penalty: lambda, strength of the pull of a personal model to the client's w_i; 0 uploads the received model unchanged.
        outer_lr: eta, step size of w_i.
        beta: weight of the clients' mean in the global model; 1 replaces the model by the mean.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    node_batches: ClassVar[bool] = False  # all clients have as many mini-batches as the largest, so a client's own steps are not counted
    ranges: ClassVar[dict[str, Range]] = {
        "inner_steps": at_least(1), "penalty": at_least(0), "outer_lr": above(0), "beta": above(0),
    }  # fmt: skip

    inner_steps: int
    penalty: float
    outer_lr: float
    beta: float

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch = setting.batch
        self.local = torch.zeros(batch.size, setting.layout.size, dtype=batch.dtype, device=batch.device)  # w_i, [B, P]

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        rows = self._index(step.rows)
        if step.epoch == 0:
            self.local[rows] = step.received
            return gradient
        if step.epoch % self.inner_steps == 0:
            self.local[rows] = self._moved(rows, step.theta)
        return gradient.add_(step.theta - self.local[rows], alpha=self.penalty)

    def upload(self, rows: Sequence[int], received: Tensor, trained: Tensor) -> Tensor:
        return self._moved(self._index(rows), trained)

    def _index(self, rows: Sequence[int]) -> Tensor | slice:
        return slice(None) if len(rows) == len(self.local) else put(rows, self.local.device)

    def _moved(self, rows: Tensor | slice, personal: Tensor) -> Tensor:
        """Return w_i ``[k, P]`` after an outer round that ended with the models ``personal [k, P]``."""
        return torch.lerp(self.local[rows], personal, self.outer_lr * self.penalty)

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        return torch.lerp(previous, received, self.beta)
