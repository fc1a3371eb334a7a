"""Synchronous methods whose clients remember something between rounds, one client after the other: MOON, SCAFFOLD, FedDC;
and pFedMe, whose clients train one model and upload another.

Models are flat vectors in the order of ``torch.nn.Module.parameters``; losses are written as in the papers and differentiated
as they stand.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fgl_bench.data.graph import Federation

from .models import Parameters
from .sync import AGG_WEIGHTS
from .training import Client, make_clients, normalize


def vector_of(client: Client) -> torch.Tensor:
    return parameters_to_vector(client.model.parameters()).detach().clone()


def load(client: Client, vector: torch.Tensor) -> None:
    vector_to_parameters(vector.clone(), client.model.parameters())


def live(client: Client) -> torch.Tensor:
    """The parameters as one vector that gradients flow through."""
    return parameters_to_vector(client.model.parameters())


def cross_entropy(client: Client) -> torch.Tensor:
    client.model.train()
    graph = client.observed
    return functional.cross_entropy(client.model(*graph.inputs)[graph.train], graph.y[graph.train])


def gradient_of(client: Client, loss: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(client.model.parameters()))])


def descend(client: Client, gradient: torch.Tensor) -> None:
    """One step of the client's optimiser along a gradient given as a vector."""
    done = 0
    for tensor in client.model.parameters():
        tensor.grad = gradient[done : done + tensor.numel()].view_as(tensor).clone()
        done += tensor.numel()
    client.optimizer.step()


def mean(vectors: list[torch.Tensor], weights: list[float] | None = None) -> torch.Tensor:
    weights = weights or [1 / len(vectors)] * len(vectors)
    return sum(weight * vector for weight, vector in zip(weights, vectors, strict=True))


@dataclass
class MOON:
    """FedAvg with the model-contrastive loss (Li, He & Song, CVPR 2021); previous models are kept as models."""

    mu: float = 1.0
    temperature: float = 0.5
    previous: int = 1
    nodes: str = "all"

    def start(self, clients: list[Client], initial: torch.Tensor) -> None:
        self.memory: list[list[torch.Tensor]] = [[] for _ in clients]

    def representation(self, client: Client) -> torch.Tensor:
        x, *edges = client.observed.inputs
        for conv in client.model.convs[:-1]:
            x = functional.relu(conv(x, *edges))
        return x

    def contrast(self, now: torch.Tensor, received: torch.Tensor, previous: list[torch.Tensor]) -> torch.Tensor:
        """One node's loss, from its representations."""

        def exponential(other):
            if not now.any() or not other.any():
                return torch.ones((), dtype=now.dtype)  # a zero vector has cosine 0 to everything
            return torch.exp(torch.dot(now, other) / (now.norm() * other.norm()) / self.temperature)

        near, far = exponential(received), sum(exponential(other) for other in previous)
        return -torch.log(near / (near + far))

    def trip(self, i: int, client: Client, w: torch.Tensor, epochs: int) -> None:
        references = []
        with torch.no_grad():
            for vector in [w, *self.memory[i]]:
                load(client, vector)
                references.append(self.representation(client))
        load(client, w)
        among = range(client.num_nodes) if self.nodes == "all" else client.observed.train.nonzero()[:, 0].tolist()
        for _ in range(epochs):
            loss = cross_entropy(client)
            if self.memory[i]:
                now = self.representation(client)
                terms = [self.contrast(now[v], references[0][v], [r[v] for r in references[1:]]) for v in among]
                loss = loss + self.mu * sum(terms) / len(terms)
            descend(client, gradient_of(client, loss))
        self.memory[i] = [vector_of(client), *self.memory[i]][: self.previous]

    def aggregate(self, chosen: list[int], clients: list[Client], w: torch.Tensor, trained: dict[int, torch.Tensor]) -> torch.Tensor:
        return mean([trained[i] for i in chosen], normalize([float(clients[i].num_train) for i in chosen]))


@dataclass
class SCAFFOLD:
    """Control variates (Karimireddy et al., ICML 2020); c is updated from the changes, never averaged anew."""

    server_lr: float = 1.0
    literal: bool = False
    weighting: str = "uniform"

    def start(self, clients: list[Client], initial: torch.Tensor) -> None:
        self.c = torch.zeros_like(initial)
        self.own = [torch.zeros_like(initial) for _ in clients]
        self.fresh: dict[int, torch.Tensor] = {}

    def trip(self, i: int, client: Client, w: torch.Tensor, epochs: int) -> None:
        gradients = []
        for _ in range(epochs):
            gradients.append(gradient_of(client, cross_entropy(client)))
            descend(client, gradients[-1] - self.own[i] + self.c)
        self.fresh[i] = mean(gradients)
        if self.literal:
            lr = client.optimizer.param_groups[0]["lr"]
            self.fresh[i] = self.own[i] - self.c + (w - vector_of(client)) / (epochs * lr)

    def aggregate(self, chosen: list[int], clients: list[Client], w: torch.Tensor, trained: dict[int, torch.Tensor]) -> torch.Tensor:
        changes = [self.fresh[i] - self.own[i] for i in chosen if i in self.fresh]
        self.c = self.c + sum(changes) / len(clients)
        for i in chosen:
            self.own[i] = self.fresh.pop(i, self.own[i])
        shares = normalize([AGG_WEIGHTS[self.weighting](clients[i]) for i in chosen])
        return w + self.server_lr * mean([trained[i] - w for i in chosen], shares)


@dataclass
class FedDC:
    """Local drift decoupling and correction (Gao et al., CVPR 2022), the loss in full as the official code has it."""

    alpha: float = 0.01
    scaled: bool = True
    clip: float | None = 10.0
    literal: bool = False

    def start(self, clients: list[Client], initial: torch.Tensor) -> None:
        total = sum(client.num_train for client in clients)
        self.size = [len(clients) * client.num_train / total if self.scaled else 1.0 for client in clients]
        self.a = torch.zeros_like(initial)
        self.state = [torch.zeros_like(initial) for _ in clients]
        self.drift = [torch.zeros_like(initial) for _ in clients]
        self.change: dict[int, torch.Tensor] = {}

    def trip(self, i: int, client: Client, w: torch.Tensor, epochs: int) -> None:
        alpha, linear = self.alpha / self.size[i], self.a / self.size[i] - self.state[i]
        gradients = []
        for _ in range(epochs):
            theta = live(client)
            loss = cross_entropy(client) + alpha / 2 * (theta - (w - self.drift[i])).square().sum() + theta @ linear
            gradient = gradient_of(client, loss)
            if self.clip is not None:
                gradient = gradient * min(1.0, self.clip / (float(gradient.norm()) + 1e-6))
            gradients.append(gradient)
            descend(client, gradient)
        moved = vector_of(client) - w
        self.drift[i] = self.drift[i] + moved
        lr = client.optimizer.param_groups[0]["lr"]
        state = (-moved / (epochs * lr) if self.literal else mean(gradients)) - linear
        self.change[i], self.state[i] = state - self.state[i], state

    def aggregate(self, chosen: list[int], clients: list[Client], w: torch.Tensor, trained: dict[int, torch.Tensor]) -> torch.Tensor:
        self.a = self.a + sum(self.size[i] * self.change.pop(i) for i in chosen if i in self.change) / len(clients)
        return mean([trained[i] for i in chosen]) + mean(self.drift)


@dataclass
class PFedMe:
    """Dinh, Tran & Nguyen, NeurIPS 2020, algorithm 1: the client keeps its personal model, ``w_i`` goes to the server."""

    inner_steps: int
    penalty: float
    outer_lr: float
    beta: float

    def start(self, clients: list[Client], initial: torch.Tensor) -> None:
        self.uploaded: dict[int, torch.Tensor] = {}

    def trip(self, i: int, client: Client, w: torch.Tensor, epochs: int) -> None:
        local = w.clone()
        while epochs:
            inner = min(self.inner_steps, epochs)
            for _ in range(inner):
                envelope = cross_entropy(client) + self.penalty / 2 * (live(client) - local).square().sum()
                descend(client, gradient_of(client, envelope))
            local = local - self.outer_lr * self.penalty * (local - vector_of(client))
            epochs -= inner
        self.uploaded[i] = local

    def aggregate(self, chosen: list[int], clients: list[Client], w: torch.Tensor, trained: dict[int, torch.Tensor]) -> torch.Tensor:
        shares = normalize([float(clients[i].num_train) for i in chosen])
        average = mean([self.uploaded.pop(i, w) for i in chosen], shares)
        return (1 - self.beta) * w + self.beta * average


@dataclass(frozen=True)
class Round:
    """The global parameters before and after the round, and what each participant trained."""

    received: Parameters
    trained: dict[int, Parameters]
    aggregate: Parameters


def run_stateful(
    federation: Federation, method, initial: Parameters, *, rounds: int, local_epochs: int = 1, chosen: list[list[int]] | None = None,
    **settings,
) -> list[Round]:  # fmt: skip
    """Run ``rounds`` rounds; in round t the clients ``chosen[t]`` take part (all by default).

    A client without training nodes returns what it received, and nothing that it remembers changes.
    """
    clients = make_clients(federation, initial, **settings)
    w = vector_of(clients[0])
    method.start(clients, w)

    def named(vector: torch.Tensor) -> Parameters:
        keep = vector_of(clients[0])
        load(clients[0], vector)
        parameters = clients[0].parameters()
        load(clients[0], keep)
        return parameters

    trace = []
    for number in range(rounds):
        here = list(range(len(clients))) if chosen is None else chosen[number]
        trained = {}
        for i in here:
            load(clients[i], w)
            if clients[i].num_train:
                method.trip(i, clients[i], w, local_epochs)
            trained[i] = vector_of(clients[i])
        after = method.aggregate(here, clients, w, trained)
        trace.append(Round(named(w), {i: named(vector) for i, vector in trained.items()}, named(after)))
        w = after
    return trace
