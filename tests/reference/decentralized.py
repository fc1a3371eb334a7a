"""Rounds without a server, one client after the other: D-PSGD."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fgl_bench.data.graph import Federation

from .models import Parameters, combine
from .sync import mix
from .training import Client, make_clients

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
