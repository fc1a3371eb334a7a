"""FedNova."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.mixing import Mixing, normalise
from fgl_bench.engine.trips import Trips


@dataclass
class FedNova(FedAvg):
    """Normalised averaging: clients that take more steps do not weigh more (Wang et al., NeurIPS 2020, eq. 6 and algorithm 1).

    With ``p_i`` the client's share of the round's training nodes and ``tau_i`` its local steps,
    ``w <- w + tau_eff * sum of p_i (y_i - w) / tau_i`` and ``tau_eff = sum of p_i tau_i``. Where all clients take as many steps
    (``batch_nodes=null``) this is FedAvg.

    Resolutions: ``|a_i|_1`` of the paper is the number of steps, as for local SGD; for Adam, whose accumulation vector depends on
    the gradients, the paper gives no value. A client without training nodes takes no step and has no share, unless nobody has
    one: then the participants count alike, as in FedAvg.
    """

    def report(self, trips: Trips) -> dict[str, Tensor]:
        steps = torch.as_tensor(trips.steps, dtype=trips.trained.dtype, device=trips.trained.device)
        return {"steps": steps.expand(len(trips.rows), 1)[:, 0].clone()}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        self.steps = reports["steps"]
        return super().mix(reports, arrived)

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        share = normalise(self.setting.weights, arrived).to(received.dtype)
        steps = self.steps.clamp(min=1)
        weights = share * (share * steps).sum(1, keepdim=True) / steps
        change = torch.einsum("sc,scp->sp", weights, uploaded - previous)
        return (previous[:, 0] + change)[:, None].expand_as(received)

    def traffic(self) -> Traffic:
        count = self.setting.layout.count
        return Traffic(upload={"model": count, "steps": 1}, download={"model": count})
