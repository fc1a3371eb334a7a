"""FedProto and FedTGP, one client after the other, with PyTorch Geometric's layers; clients may have different networks of two layers."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn import functional

from fgl_bench.data.graph import ClientGraph, Federation

from . import message_passing

Parameters = dict[str, torch.Tensor]
Prototypes = dict[int, torch.Tensor]


class Client:
    def __init__(self, graph: ClientGraph, network: str, initial: Parameters):
        features = graph.features.toarray() if hasattr(graph.features, "toarray") else graph.features
        self.x, self.edges = torch.as_tensor(features, dtype=torch.float64), torch.as_tensor(graph.edges)
        self.y, self.train = torch.as_tensor(graph.labels), torch.as_tensor(graph.train)
        self.network = getattr(message_passing, network)  # gcn, gat or sage
        self.parameters = {name: value.clone().requires_grad_() for name, value in initial.items()}
        self.optimizer = torch.optim.Adam(list(self.parameters.values()), lr=0.01, weight_decay=5e-4)

    def hidden(self) -> torch.Tensor:
        return functional.relu(self.network(self.parameters, self.x, self.edges, layers=1))

    def members(self) -> dict[int, torch.Tensor]:
        """Training nodes by class."""
        return {c: ((self.y == c) & self.train).nonzero()[:, 0] for c in self.y[self.train].unique().tolist()}

    def prototypes(self) -> Prototypes:
        with torch.no_grad():
            hidden = self.hidden()
            return {c: hidden[nodes].mean(0) for c, nodes in self.members().items()}

    def distance(self, term: str, known: Prototypes) -> torch.Tensor:
        hidden, total = self.hidden(), torch.zeros((), dtype=torch.float64)
        for c, nodes in self.members().items():
            if c not in known:
                continue
            if term == "prototypes":
                total = total + (hidden[nodes].mean(0) - known[c]).norm()
            for v in nodes.tolist() if term != "prototypes" else ():
                square = functional.mse_loss(hidden[v], known[c])
                total = total + square / (len(nodes) if term == "classes" else int(self.train.sum()))
        return total

    def trip(self, epochs: int, weight: float, term: str, known: Prototypes) -> None:
        for _ in range(epochs if self.train.any() else 0):
            logits = self.network(self.parameters, self.x, self.edges, layers=2)
            loss = functional.cross_entropy(logits[self.train], self.y[self.train]) + weight * self.distance(term, known)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


@dataclass
class FedProto:
    average: str = "uniform"
    known: Prototypes = field(default_factory=dict)

    def serve(self, uploads: list[tuple[Client, Prototypes]], classes: int) -> None:
        for c in range(classes):
            having = [(client, own[c]) for client, own in uploads if c in own]
            if self.average == "openfgl":
                size = sum(int(client.train.sum()) for client, _ in uploads)  # of those without the class, too: they count as zeros
                self.known[c] = sum((int(client.train.sum()) / size * point for client, point in having), torch.zeros(()))
            elif having:
                sizes = [len(client.members()[c]) if self.average == "samples" else 1 for client, _ in having]
                self.known[c] = sum(size / sum(sizes) * own for size, (_, own) in zip(sizes, having, strict=True))


class FedTGP:
    """The server's prototypes as in the paper, all uploads in one batch."""

    def __init__(self, initial: Parameters, margin: str, threshold: float, epochs: int, lr: float):
        self.parameters = {name: value.clone().requires_grad_() for name, value in initial.items()}
        self.optimizer = torch.optim.SGD(list(self.parameters.values()), lr=lr)
        self.margin, self.threshold, self.epochs = margin, threshold, epochs
        self.known: Prototypes = {}

    def generate(self) -> torch.Tensor:
        middle = functional.relu(message_passing.linear(self.parameters["embedding"], self.parameters, "middle"))
        return message_passing.linear(middle, self.parameters, "last")

    def serve(self, uploads: list[tuple[Client, Prototypes]], classes: int) -> None:
        points = [(c, point) for _, own in uploads for c, point in own.items()]
        means = {c: torch.stack([point for other, point in points if other == c]).mean(0) for c in {c for c, _ in points}}
        distances = {c: [float((means[c] - means[k]).norm()) for k in means if k != c] for c in means}
        margin = {"nearest": max(map(min, distances.values())), "farthest": max(map(max, distances.values()))}[self.margin]
        for _ in range(self.epochs):
            centers, losses = self.generate(), []
            for c, point in points:
                far = torch.stack([(point - center).norm() for center in centers])
                far = far + min(margin, self.threshold) * functional.one_hot(torch.tensor(c), classes)
                losses.append(functional.cross_entropy(-far, torch.tensor(c)))
            self.optimizer.zero_grad()
            (sum(losses) / len(losses)).backward()
            self.optimizer.step()
        self.known = dict(enumerate(self.generate().detach()))


def run(
    federation: Federation, networks: list[str], initial: list[Parameters], server, *, rounds: int, weight: float, term: str,
    local_epochs: int = 1, chosen: list[list[int]] | None = None,
) -> list[dict[int, Parameters]]:  # fmt: skip
    """Return what every participant of a round trained, round by round."""
    clients = [Client(*each) for each in zip(federation.clients, networks, initial, strict=True)]
    trace = []
    for number in range(rounds):
        here = range(len(clients)) if chosen is None else chosen[number]
        for i in here:
            clients[i].trip(local_epochs, weight, term, server.known)
        server.serve([(clients[i], clients[i].prototypes()) for i in here], federation.num_classes)
        trace.append({i: {name: value.detach().clone() for name, value in clients[i].parameters.items()} for i in here})
    return trace
