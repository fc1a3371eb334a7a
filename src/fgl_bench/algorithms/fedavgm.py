"""FedAvgM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.errors import Range, above


@dataclass
class FedAvgM(FedAvg):
    """FedAvg with momentum on the server (Hsu, Qi, Brown, arXiv 1909.06335, section 4.3).

    With ``d`` the average change of the clients' models, ``v <- momentum v + d`` and ``w <- w + server_lr v``. ``v`` starts at zero.

    Resolutions: the paper has no ``server_lr`` (1). A round without uploads leaves ``v`` unchanged.

    Attributes:
        momentum: momentum of the server, in [0, 1); 0 with ``server_lr=1`` is FedAvg.
        server_lr: step size of the server.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"momentum": Range(0, 1, below=True), "server_lr": above(0)}

    momentum: float
    server_lr: float

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.velocity = torch.zeros(len(setting.seeds), 1, setting.layout.size, dtype=setting.batch.dtype, device=setting.batch.device)

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        change = received[:, :1] - previous[:, :1]
        self.velocity = torch.where(arrived.any(1)[:, None, None], self.momentum * self.velocity + change, self.velocity)
        return (previous[:, :1] + self.server_lr * self.velocity).expand_as(received)
