"""Plain loops of methods whose clients have models of their own, one client after the other: Ditto, APFL, FedALA, and FedAvg with
fine-tuning, of which FedBABU is a kind; and FedExP, whose clients are FedAvg's.

A method has ``begin``, then in every round ``trip`` of each participant, which returns what the client received and trained, by name, and
``aggregate``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fgl_bench.data.graph import Federation

from .models import Parameters
from .server_steps import AverageChange
from .stateful import cross_entropy, descend, gradient_of, live, load, mean, vector_of
from .training import Client, make_clients, normalize

Trip = tuple[Parameters, Parameters]


class Averaging:
    """FedAvg of what the participants have put into ``uploads``."""

    def begin(self, federation: Federation, initial: Parameters, settings: dict[str, Any]) -> None:
        self.federation, self.initial, self.settings = federation, initial, settings
        self.clients = self.fresh()
        self.w = vector_of(self.clients[0])
        self.uploads: dict[int, torch.Tensor] = {}

    def fresh(self) -> list[Client]:
        return make_clients(self.federation, self.initial, **self.settings)

    def aggregate(self, chosen: list[int]) -> None:
        self.w = mean([self.uploads[i] for i in chosen], normalize([float(self.clients[i].num_train) for i in chosen]))


class TwoModels(Averaging):
    """A global and an own model, with an optimizer each."""

    def begin(self, federation: Federation, initial: Parameters, settings: dict[str, Any]) -> None:
        super().begin(federation, initial, settings)
        self.own = self.fresh()

    def trip(self, i: int, epochs: int) -> Trip:
        load(self.clients[i], self.w)
        received = self.named(i)
        for epoch in range(epochs if self.clients[i].num_train else 0):
            self.step(i, epoch)
        self.uploads[i] = vector_of(self.clients[i])
        return received, self.named(i)

    def named(self, i: int) -> Parameters:
        own = {f"personal.{name}": value for name, value in self.own[i].parameters().items()}
        return {**self.clients[i].parameters(), **own}


@dataclass
class Ditto(TwoModels):
    """Li et al., ICML 2021, algorithm 1."""

    penalty: float

    def step(self, i: int, epoch: int) -> None:
        client, own = self.clients[i], self.own[i]
        descend(own, gradient_of(own, cross_entropy(own) + self.penalty / 2 * (live(own) - self.w).square().sum()))
        descend(client, gradient_of(client, cross_entropy(client)))


@dataclass
class APFL(TwoModels):
    """Deng et al., 2020, algorithm 1."""

    alpha: float
    adapt: str
    decay: float

    def begin(self, federation: Federation, initial: Parameters, settings: dict[str, Any]) -> None:
        super().begin(federation, initial, settings)
        self.mixed = [self.alpha] * len(self.clients)

    def step(self, i: int, epoch: int) -> None:
        client, own = self.clients[i], self.own[i]
        w, v, alpha = vector_of(client), vector_of(own), self.mixed[i]
        load(own, alpha * v + (1 - alpha) * w)
        gradient = gradient_of(own, cross_entropy(own))  # at the mixture
        load(own, v)
        descend(own, alpha * gradient)
        descend(client, gradient_of(client, cross_entropy(client)))
        if self.adapt == "step" or (self.adapt == "trip" and epoch == 0):
            slope = float(torch.dot(v - w, gradient)) + self.decay * alpha
            self.mixed[i] = min(1.0, max(0.0, alpha - self.settings["lr"] * slope))

    def named(self, i: int) -> Parameters:
        return {**super().named(i), "alpha": torch.tensor([self.mixed[i]], dtype=self.w.dtype)}


@dataclass
class FedALA(Averaging):
    """Zhang et al., AAAI 2023, algorithm 1, with all training nodes."""

    layers: int
    step_size: float
    tolerance: float
    most_steps: int

    def begin(self, federation: Federation, initial: Parameters, settings: dict[str, Any]) -> None:
        super().begin(federation, initial, settings)
        self.last: dict[int, torch.Tensor] = {}
        self.weights: dict[int, torch.Tensor] = {}
        sizes = [(parameter.numel(), name) for name, parameter in self.clients[0].model.named_parameters()]
        late = [f"convs.{number}." for number in range(len(self.clients[0].model.convs))][-self.layers :]
        parts = [torch.full((size,), float(name.startswith(tuple(late)))) for size, name in sizes]
        self.adapted = torch.cat(parts).bool()

    def start(self, i: int) -> torch.Tensor:
        if i not in self.last:
            return self.w
        client, own, losses = self.clients[i], self.last[i], []
        first, weight = i not in self.weights, self.weights.get(i, torch.ones_like(self.w))
        while True:
            load(client, own + (self.w - own) * weight)
            if not client.num_train:
                break
            loss = cross_entropy(client)
            slope = gradient_of(client, loss)
            weight = torch.where(self.adapted, (weight - self.step_size * slope * (self.w - own)).clamp(0, 1), 1.0)
            losses.append(loss.item())
            converged = len(losses) > 10 and np.std(losses[-10:]) < self.tolerance
            if not first or converged or len(losses) == self.most_steps:
                break
        self.weights[i] = weight
        return own + (self.w - own) * weight

    def trip(self, i: int, epochs: int) -> Trip:
        client = self.clients[i]
        load(client, self.start(i))
        received = client.parameters()
        for _ in range(epochs if client.num_train else 0):
            descend(client, gradient_of(client, cross_entropy(client)))
        self.uploads[i] = self.last[i] = vector_of(client)
        return received, client.parameters()


@dataclass
class Finetuning(Averaging):
    """FedAvg for some rounds, then every client alone; ``frozen`` layers stay in the first stage, ``kept`` ones in the second."""

    federated_rounds: int
    frozen: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def begin(self, federation: Federation, initial: Parameters, settings: dict[str, Any]) -> None:
        super().begin(federation, initial, settings)
        self.number = 0
        self.begin_stage()

    def begin_stage(self) -> None:
        if self.number == self.federated_rounds:
            self.clients = self.fresh()
            for client in self.clients:
                load(client, self.w)

    def trip(self, i: int, epochs: int) -> Trip:
        client, alone = self.clients[i], self.number >= self.federated_rounds
        if not alone:
            load(client, self.w)
        received = client.parameters()
        for _ in range(epochs if client.num_train else 0):
            descend(client, gradient_of(client, cross_entropy(client)))
            fixed = {name: received[name] for name in received if name.startswith(self.kept if alone else self.frozen)}
            client.load({**client.parameters(), **fixed})
        self.uploads[i] = vector_of(client)
        return received, client.parameters()

    def aggregate(self, chosen: list[int]) -> None:
        if self.number < self.federated_rounds:
            super().aggregate(chosen)
        self.number += 1
        self.begin_stage()


@dataclass
class FedExP(AverageChange):
    """Jhunjhunwala, Wang & Joshi, ICLR 2023, algorithm 1, with weights by size."""

    epsilon: float

    def aggregate(self, chosen: list[int], clients: list[Client], w: torch.Tensor, trained: dict[int, torch.Tensor]) -> torch.Tensor:
        shares = normalize([float(clients[i].num_train) for i in chosen])
        changes = [trained[i] - w for i in chosen]
        change = mean(changes, shares)
        squares = sum(share * float(each @ each) for share, each in zip(shares, changes, strict=True))
        return w + max(1.0, squares / (2 * (float(change @ change) + self.epsilon))) * change


def run_personal(
    federation: Federation, method: Any, initial: Parameters, *, rounds: int, local_epochs: int, chosen: list[list[int]], **settings: Any
) -> list[dict[int, Trip]]:
    """The trips of every round, by client."""
    method.begin(federation, initial, settings)
    trace = []
    for number in range(rounds):
        trace.append({i: method.trip(i, local_epochs) for i in chosen[number]})
        method.aggregate(chosen[number])
    return trace
