"""FedExP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import Range, at_least


@dataclass
class FedExP(FedAvg):
    """FedAvg with an adaptive server step size (Jhunjhunwala, Wang, Joshi, ICLR 2023, algorithm 1).

    With ``d_i`` the change of client i's model and ``d`` the clients' average change, the server takes ``w <- w + eta d`` and
    ``eta = max(1, mean of ||d_i||^2 / (2 (||d||^2 + epsilon)))``. Clients whose changes point in different directions get a longer step.

    Resolutions: both means are weighted by size, as in the authors' code (``agg_weight=uniform``: the paper's). Their code multiplies
    epsilon by the number of participants and lets it decay with the learning rate; here it is constant, as in the paper. Every
    round's model is scored, not the average of the last two, which the paper reports because the models oscillate.

    Attributes:
        epsilon: lower bound of the denominator; large values give FedAvg.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    unsent: ClassVar[tuple[str, ...]] = ("squared_norm",)  # follows from the uploaded model
    ranges: ClassVar[dict[str, Range]] = {"epsilon": at_least(0)}

    epsilon: float

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return {"squared_norm": (trips.trained - trips.received).double().square().sum(1)}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        self.mean_norm = (normalize(self.setting.weights, arrived) * reports["squared_norm"]).sum(1)  # [S]
        return super().mix(reports, arrived)

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        change = (received[:, 0] - previous[:, 0]).double().square().sum(1)
        scale = self.mean_norm / (2 * (change + self.epsilon)).clamp(min=torch.finfo(torch.float64).tiny)
        return torch.lerp(previous[:, :1], received[:, :1], scale.clamp(min=1)[:, None, None].to(received.dtype)).expand_as(received)
