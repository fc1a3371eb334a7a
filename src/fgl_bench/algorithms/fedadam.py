"""FedAdam, FedYogi and FedAdagrad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.errors import Range, above


@dataclass
class FedAdam(FedAvg):
    """FedAvg with an adaptive optimizer on the server (Reddi et al., ICLR 2021, algorithm 2).

    With ``d`` the average change of the clients' models, ``m <- beta1 m + (1 - beta1) d``, a second moment ``v`` by ``rule``, and
    ``w <- w + server_lr m / (sqrt(v) + tau)``; no bias correction. ``m`` starts at zero and ``v`` at ``tau^2``.

    Resolutions: the paper averages uniformly in algorithm 2 and by size in its experiments; here by size, as in FedAvg. A round
    without uploads leaves ``m`` and ``v`` unchanged. The defaults are those recommended in the paper (``beta1=0.9``, ``beta2=0.99``,
    ``tau=1e-3``), which tunes ``server_lr``.

    Attributes:
        server_lr: step size of the server.
        beta1, beta2: decays of the first and the second moment, in [0, 1); ``adagrad`` has no ``beta2``.
        tau: adaptivity, above 0.
        rule: ``adam``, ``v <- beta2 v + (1 - beta2) d^2``; ``yogi``, ``v <- v - (1 - beta2) d^2 sign(v - d^2)``; or ``adagrad``,
            ``v <- v + d^2``.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        "server_lr": above(0), "beta1": Range(0, 1, below=True), "beta2": Range(0, 1, below=True), "tau": above(0),
    }  # fmt: skip

    server_lr: float
    beta1: float
    beta2: float
    tau: float
    rule: Literal["adam", "yogi", "adagrad"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        shape = (len(setting.seeds), 1, setting.layout.size)
        self.first = torch.zeros(shape, dtype=setting.batch.dtype, device=setting.batch.device)
        self.second = torch.full_like(self.first, self.tau**2)

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        some = arrived.any(1)[:, None, None]
        change = received[:, :1] - previous[:, :1]
        self.first = torch.where(some, self.beta1 * self.first + (1 - self.beta1) * change, self.first)
        self.second = torch.where(some, RULES[self.rule](self.second, change.square(), self.beta2), self.second)
        step = self.server_lr * self.first / (self.second.sqrt() + self.tau)
        return (previous[:, :1] + step).expand_as(received)


RULES = {
    "adam": lambda second, square, beta2: beta2 * second + (1 - beta2) * square,
    "yogi": lambda second, square, beta2: second - (1 - beta2) * square * (second - square).sign(),
    "adagrad": lambda second, square, beta2: second + square,
}
