"""Plain loops of methods whose server takes a step of its own along the average change."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .stateful import cross_entropy, descend, gradient_of, mean
from .training import Client, normalize


class AverageChange:
    """FedAvg's clients; a subclass says what the server makes of their average change."""

    def start(self, clients: list[Client], initial: torch.Tensor) -> None:
        self.v = torch.zeros_like(initial)
        self.m = torch.zeros_like(initial)

    def trip(self, i: int, client: Client, w: torch.Tensor, epochs: int) -> None:
        for _ in range(epochs):
            descend(client, gradient_of(client, cross_entropy(client)))

    def aggregate(self, chosen: list[int], clients: list[Client], w: torch.Tensor, trained: dict[int, torch.Tensor]) -> torch.Tensor:
        shares = normalize([float(clients[i].num_train) for i in chosen])
        return self.step(w, mean([trained[i] - w for i in chosen], shares))


@dataclass
class FedAvgM(AverageChange):
    """Hsu et al., 2019."""

    momentum: float
    server_lr: float

    def step(self, w: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
        self.v = self.momentum * self.v + change
        return w + self.server_lr * self.v


@dataclass
class FedAdam(AverageChange):
    """Reddi et al., ICLR 2021, algorithm 2."""

    server_lr: float
    beta1: float
    beta2: float
    tau: float
    rule: str

    def start(self, clients: list[Client], initial: torch.Tensor) -> None:
        super().start(clients, initial)
        self.v = torch.full_like(initial, self.tau**2)

    def step(self, w: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
        self.m = self.beta1 * self.m + (1 - self.beta1) * change
        if self.rule == "adam":
            self.v = self.beta2 * self.v + (1 - self.beta2) * change**2
        elif self.rule == "yogi":
            self.v = self.v - (1 - self.beta2) * change**2 * torch.sign(self.v - change**2)
        else:
            self.v = self.v + change**2
        return w + self.server_lr * self.m / (torch.sqrt(self.v) + self.tau)
