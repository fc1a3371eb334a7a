"""Rounds without a server, one client after the other: D-PSGD, DFed-SST."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import torch

from fgl_bench.data.graph import Federation

from .models import Parameters, combine
from .sync import mix
from .training import Client, cosine, make_clients

Graph = dict[int, set[int]]


def ring(clients: int) -> Graph:
    """Everybody's two neighbours."""
    return {i: {(i - 1) % clients, (i + 1) % clients} - {i} for i in range(clients)}


@dataclass
class DPSGD:
    """Averaging with Metropolis weights on an undirected graph (Lian et al., NeurIPS 2017)."""

    graph: Graph
    at_unmixed: bool = False

    def rows(self, number: int) -> list[dict[int, float]]:
        rows = []
        for i, neighbours in sorted(self.graph.items()):
            row = {j: 1 / (1 + max(len(neighbours), len(self.graph[j]))) for j in neighbours}
            rows.append({**row, i: 1 - sum(row.values())})
        return rows

    def exchange(self, clients: list[Client], number: int, before: list[Parameters], trained: list[Parameters]):
        rows = self.rows(number)
        matrix = torch.tensor([[row.get(j, 0.0) for j in range(len(rows))] for row in rows], dtype=torch.float64)
        if not self.at_unmixed:
            return matrix, mix(matrix, trained)
        mixed = mix(matrix, before)
        return matrix, [combine([1.0, 1.0, -1.0], [m, after, start]) for m, after, start in zip(mixed, trained, before, strict=True)]


def hops_from(start: int, neighbours: list[list[int]]) -> dict[int, int]:
    """Breadth-first search: hops to every node that can be reached."""
    found, waiting = {start: 0}, deque([start])
    while waiting:
        node = waiting.popleft()
        for other in neighbours[node]:
            if other not in found:
                found[other] = found[node] + 1
                waiting.append(other)
    return found


def dispersion(nodes: int, edges: list[tuple[int, int]], groups: list[list[int]], soft: list[list[float]], unreachable: str = "penalty"):
    """WLSD, the classes' mean distances D and the rows of CSE, over all ordered pairs of distinct nodes of a class (eqs. 1 to 5)."""
    neighbours: list[list[int]] = [[] for _ in range(nodes)]
    for u, v in edges:
        neighbours[u].append(v)
    found = [hops_from(node, neighbours) for node in range(nodes)]
    longest = max(max(each.values()) for each in found)
    spread, embedding = [], []
    for group in groups:
        total, pairs, row = 0.0, 0, [0.0] * len(soft[0])
        for u in group:
            for v in group:
                if u == v or (v not in found[u] and unreachable == "ignore"):
                    continue
                hops = found[u].get(v, longest + 1)
                total, pairs = total + hops, pairs + 1
                row = [value + hops * (a + b) / 2 for value, a, b in zip(row, soft[u], soft[v], strict=True)]
        spread.append(total / pairs if pairs else 0.0)
        embedding.append([value / pairs if pairs else 0.0 for value in row])
    logs = [math.log(1 + len(group)) for group in groups]
    return sum(w * d for w, d in zip(logs, spread, strict=True)) / max(sum(logs), 1e-12), spread, embedding


@dataclass
class DFedSST:
    """Adaptive directed topology (Guo et al., DFed-SST, algorithm 1); ``partners`` are the first, random, in-neighbours."""

    partners: list[set[int]]
    refresh: int = 5
    self_in_aggregation: bool = False
    unreachable: str = "penalty"
    wlsd: list[float] = field(default_factory=list)
    embeddings: list[torch.Tensor] = field(default_factory=list)

    def alpha(self, i: int) -> dict[int, float]:
        heard = sorted(self.partners[i])
        if not heard:
            return {i: 1.0}
        if not self.wlsd:
            heard = sorted({*heard, i}) if self.self_in_aggregation else heard
            return {j: 1 / len(heard) for j in heard}
        alike = {j: math.exp(cosine(self.embeddings[i], self.embeddings[j])) for j in heard}
        if self.self_in_aggregation:
            alike[i] = math.e
        weights = {j: value * self.wlsd[j] for j, value in alike.items()}
        weights = weights if sum(weights.values()) > 0 else alike
        return {j: value / sum(weights.values()) for j, value in weights.items()}

    def observe(self, client: Client) -> tuple[float, torch.Tensor]:
        graph, soft = client.observed, client.probabilities()
        label = [int(graph.y[v]) if bool(graph.train[v]) else int(soft[v].argmax()) for v in range(graph.num_nodes)]
        groups = [[v for v, own in enumerate(label) if own == k] for k in range(graph.num_classes)]
        wlsd, _, rows = dispersion(graph.num_nodes, graph.edge_index.t().tolist(), groups, soft.tolist(), self.unreachable)
        return wlsd, torch.tensor(rows, dtype=torch.float64).flatten()

    def exchange(self, clients: list[Client], number: int, before: list[Parameters], trained: list[Parameters]):
        everybody = range(len(clients))
        rows = [self.alpha(i) for i in everybody]
        matrix = torch.tensor([[row.get(j, 0.0) for j in everybody] for row in rows], dtype=torch.float64)
        if number % self.refresh == 0:
            seen = [self.observe(client) for client in clients]
            self.wlsd, self.embeddings = [wlsd for wlsd, _ in seen], [rows for _, rows in seen]
            for i in everybody:
                others = sorted((j for j in everybody if j != i), key=lambda j: -cosine(self.embeddings[i], self.embeddings[j]))
                self.partners[i] = set(others[: sum(self.wlsd[j] < self.wlsd[i] for j in others)])
        return matrix, mix(matrix, trained)


@dataclass(frozen=True)
class Round:
    """One round: parameters before training, after it and after mixing, and M ``[C, C]``."""

    before: list[Parameters]
    trained: list[Parameters]
    received: list[Parameters]
    mixing: torch.Tensor


def run_decentralized(federation: Federation, method, initial: Parameters, *, rounds: int, local_epochs: int = 1, **settings):
    """The trace of ``rounds`` rounds; ``method`` has ``exchange(clients, number, before, trained)``, which gives M and the new models."""
    clients = make_clients(federation, initial, **settings)
    trace = []
    for number in range(rounds):
        before = [client.parameters() for client in clients]
        for client in clients:
            client.train(local_epochs, number)
        trained = [client.parameters() for client in clients]
        matrix, received = method.exchange(clients, number, before, trained)
        for client, parameters in zip(clients, received, strict=True):
            client.load(parameters)
        trace.append(Round(before, trained, received, matrix))
    return trace
