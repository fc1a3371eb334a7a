"""FedNova."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import ServerRounds, Traffic
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.trips import Trips


@dataclass
class FedNova(ServerRounds):
    """Normalized averaging: clients that take more steps do not weigh more (Wang et al., NeurIPS 2020, eq. 6 and algorithm 1).

    With ``p_i`` the client's share of the round's training nodes and ``tau_i`` its local steps,
    ``w <- w + tau_eff * sum of p_i (y_i - w) / tau_i`` and ``tau_eff = sum of p_i tau_i``. If all clients take the same number of
    steps (``batch_nodes=null``), this is FedAvg.

    Resolutions: ``|a_i|_1`` of the paper is the number of steps, as for local SGD; for Adam, whose accumulation vector depends on
    the gradients, the paper gives no value. A client without training nodes takes no step and has no share. If no participant has
    training nodes, weights are uniform, as in FedAvg.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True

    def report(self, trips: Trips) -> dict[str, Tensor]:
        steps = trips.trained.new_ones(1, 1) * trips.steps
        return {"steps": steps.expand(len(trips.rows), 1)[:, 0].clone()}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        share, steps = normalize(self.setting.weights, arrived), reports["steps"].clamp(min=1)
        self.scale = (share * steps).sum(1) * (share / steps).sum(1)  # [S], tau_eff times the normalization of the next line
        return Mixing(normalize(share / steps)[:, None])

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        return torch.lerp(previous, received, self.scale[:, None, None].to(received.dtype))

    def traffic(self) -> Traffic:
        count = self.setting.layout.count
        return Traffic(upload={"model": count, "steps": 1}, download={"model": count})
