"""Message passing over the edges between clients as a plain loop over clients, nodes and batches, and small federations for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from fgl_bench.data.federation import ServerFederation, build_server_federation
from fgl_bench.data.graph import Graph
from fgl_bench.data.sparsity import NoSparsity, TopologySparsity
from fgl_bench.data.splits.iid import IID
from fgl_bench.utils.seeding import generator


def small_graph(nodes: int = 60, classes: int = 3, features: int = 6, chance: float = 0.12, seed: int = 0) -> Graph:
    """Homophilous, with two isolated nodes."""
    draw = generator(seed, "small graph")
    labels = draw.integers(classes, size=nodes)
    alike = labels[:, None] == labels[None, :]
    upper = np.triu(draw.random((nodes, nodes)) < np.where(alike, chance, 0.3 * chance), 1)
    upper[:2] = False
    upper[:, :2] = False
    edges = np.stack(np.nonzero(upper | upper.T)).astype(np.int64)
    x = (np.eye(classes, features)[labels] + 0.5 * draw.normal(size=(nodes, features))).astype(np.float32)
    return Graph("small", x, edges, labels.astype(np.int64), classes)


def small_served(seed: int = 0, clients: int = 4, drop: float = 0.5, graph: Graph | None = None) -> ServerFederation:
    """60 nodes over four clients and a server; a share ``drop`` of the edges inside clients is gone."""
    split = IID(ratios=[0.8, 0.1, 0.1], per_seed=["partition", "masks"], test="server", inductive=False)
    sparsity = TopologySparsity(drop, "clean") if drop else NoSparsity()
    return build_server_federation(graph or small_graph(), split, sparsity, clients, seed, (0.8, 0.1, 0.1))


class Loop:
    """All clients of one federation, all neighbours, one node after the other.

    Args:
        parameters: by name, of the common initial model.
        order: the epoch's number to the mini-batch of every global node id.
    """

    def __init__(self, federation: ServerFederation, parameters: dict, order: Callable, *, batches: int, interval: int, lr: float):
        self.federation, self.order, self.batches, self.interval, self.lr = federation, order, batches, interval, lr
        self.owner, self.features, self.labels, self.inner, self.outer = {}, {}, {}, {}, {}
        for k, client in enumerate(federation.observed):
            for i, node in enumerate(client.nodes.tolist()):
                self.owner[node], self.labels[node] = k, int(client.labels[i])
                self.features[node] = torch.tensor(np.asarray(client.features[i]), dtype=torch.float64)
                self.inner[node], self.outer[node] = [], []
            for row, column in client.edges.T:
                self.inner[int(client.nodes[row])].append(int(client.nodes[column]))
        for row, column in federation.cross_edges.T.tolist():
            self.outer[row].append(column)
        count = len(federation.observed)
        self.models = [{name: value.clone() for name, value in parameters.items()} for _ in range(count)]
        self.stores: list[dict[int, torch.Tensor]] = [{} for _ in range(count)]
        self.fetched: list[int] = []
        self.lost: list[float] = []  # by round and client: the mean loss of its nodes, each before the step of its mini-batch

    @staticmethod
    def convolve(model: dict, number: int, own: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
        """GATv2 of one node, itself among the neighbours."""
        name = f"conv{number}."
        near, self_ = model[name + "weight"].chunk(2, 1)
        shift = model[name + "shift"].chunk(2)
        values = torch.stack([own, *others]) @ near + shift[0]
        scores = F.leaky_relu(values + own @ self_ + shift[1], 0.2) @ model[name + "attention"][0]
        return torch.softmax(scores, 0) @ values + model[name + "bias"]

    def hidden(self, model: dict, node: int) -> torch.Tensor:
        """What crosses: the first convolution over edges inside the client, activated."""
        return torch.relu(self.convolve(model, 0, self.features[node], [self.features[other] for other in self.inner[node]]))

    def logits(self, k: int, model: dict, node: int) -> torch.Tensor:
        others = [self.hidden(model, other) for other in self.inner[node]]
        others += [self.stores[k][other] for other in self.outer[node] if other in self.stores[k]]
        out = torch.relu(self.convolve(model, 1, self.hidden(model, node), others))
        return out @ model["head.weight"] + model["head.bias"]

    def served(self, model: dict, first_hop: str) -> dict[int, torch.Tensor]:
        """What the server's model answers for its validation and test nodes, by global id.

        Args:
            first_hop: the first convolution over edges inside clients (``own``) or over all of them (``full``).
        """
        server, everywhere = self.federation.server, {node: [] for node in range(self.federation.server.num_nodes)}
        for row, column in server.edges.T.tolist():
            everywhere[row].append(column)
        near = everywhere if first_hop == "full" else {node: self.inner.get(node, []) for node in everywhere}
        features = torch.tensor(np.asarray(server.features), dtype=torch.float64)

        def hidden(node: int) -> torch.Tensor:
            return torch.relu(self.convolve(model, 0, features[node], [features[other] for other in near[node]]))

        answers = {}
        for node in np.flatnonzero(server.val | server.test).tolist():
            out = torch.relu(self.convolve(model, 1, hidden(node), [hidden(other) for other in everywhere[node]]))
            answers[node] = out @ model["head.weight"] + model["head.bias"]
        return answers

    def round(self, number: int) -> list[dict]:
        """One round; returns the trained models and leaves the averaged one with every client."""
        batch_of = self.order(number)
        count, models = len(self.models), self.models
        optimisers, lost = [], [0.0] * count
        for model in models:
            for value in model.values():
                value.requires_grad_()
            optimisers.append(torch.optim.Adam(model.values(), lr=self.lr))
        for b in range(self.batches):
            if self.interval and b % self.interval == 0:
                answers: list[dict[int, torch.Tensor]] = [{} for _ in range(count)]
                for node, k in self.owner.items():
                    if b <= batch_of[node] < b + self.interval:
                        for other in self.outer[node]:
                            with torch.no_grad():
                                answers[k][other] = self.hidden(models[self.owner[other]], other)
                self.fetched.append(sum(len(answer) for answer in answers))
                for store, answer in zip(self.stores, answers, strict=True):
                    store.update(answer)
            losses = {k: [] for k in range(count)}
            for node, k in self.owner.items():
                if batch_of[node] == b:
                    losses[k].append(F.cross_entropy(self.logits(k, models[k], node)[None], torch.tensor([self.labels[node]])))
            for k, each in losses.items():
                if each:
                    lost[k] += torch.stack(each).sum().item()
                    optimisers[k].zero_grad()
                    torch.stack(each).mean().backward()
                    optimisers[k].step()
        nodes = [list(self.owner.values()).count(k) for k in range(count)]
        self.lost += [loss / n for loss, n in zip(lost, nodes, strict=True)]
        trained = [{name: value.detach().clone() for name, value in model.items()} for model in models]
        sizes = [client.num_nodes for client in self.federation.observed]
        mean = {name: sum(n * m[name] for n, m in zip(sizes, trained, strict=True)) / sum(sizes) for name in trained[0]}
        self.models = [{name: value.clone() for name, value in mean.items()} for _ in range(count)]
        return trained
