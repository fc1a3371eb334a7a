"""Synchronous rounds, one client after the other: local, FedAvg, FedProx, FedGTA."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fgl_bench.data.graph import Federation

from .models import Parameters, combine
from .training import Client, cosine, make_clients, normalize

AGG_WEIGHTS = {
    "train": lambda client: float(client.num_train),
    "nodes": lambda client: float(client.num_nodes),
    "uniform": lambda client: 1.0,
}


@dataclass(frozen=True)
class Local:
    """Every client alone."""

    proximal = 0.0

    def mixing(self, clients: list[Client], shares: list[float]) -> torch.Tensor:
        return torch.eye(len(clients), dtype=torch.float64)


@dataclass(frozen=True)
class FedAvg:
    """Weighted averaging (McMahan et al., AISTATS 2017): every row of M is the clients' shares."""

    proximal = 0.0

    def mixing(self, clients: list[Client], shares: list[float]) -> torch.Tensor:
        return torch.tensor([shares] * len(clients), dtype=torch.float64)


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with mu/2 ||theta - w||^2 in the local loss (Li et al., MLSys 2020)."""

    mu: float = 0.01

    @property
    def proximal(self) -> float:
        return self.mu


def propagate_labels(predictions: torch.Tensor, truth: torch.Tensor, train: torch.Tensor, adjacency: torch.Tensor,
                     steps: int, alpha: float) -> torch.Tensor:  # fmt: skip
    """FedGTA's label propagation with self loops; training rows are seeded with, and kept adding, their true label."""
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype, device=adjacency.device)
    scale = looped.sum(dim=1).rsqrt()
    looped = scale[:, None] * looped * scale[None, :]
    start = torch.where(train[:, None], truth, predictions)
    labels = start
    for _ in range(steps):
        labels = alpha * looped @ labels + (1 - alpha) * start
        labels = labels + torch.where(train[:, None], start, torch.zeros_like(start))
    return labels


def raw_moments(soft: torch.Tensor, orders: int) -> torch.Tensor:
    return torch.cat([soft.pow(order).mean(dim=0) for order in range(1, orders + 1)])


def central_moments(soft: torch.Tensor, orders: int) -> torch.Tensor:
    return raw_moments(soft - soft.mean(dim=0), orders)


def hybrid_moments(soft: torch.Tensor, orders: int) -> torch.Tensor:
    return torch.cat([raw_moments(soft, orders), central_moments(soft, orders)])


MOMENTS = {"raw": raw_moments, "central": central_moments, "hybrid": hybrid_moments}


@dataclass(frozen=True)
class FedGTA:
    """Topology-aware personalised averaging (Li et al., PVLDB 17(1), 2023; the reading of the authors' code).

    A client reports moments of its propagated soft labels and its smoothing confidence H. Row i of M spreads over the
    clients whose moments are similar to i's (and i itself), in proportion to *their* confidence.
    """

    k: int = 5
    alpha: float = 0.5
    temperature: float = 20.0
    num_moments: int = 10
    threshold: float = 0.5
    moments: str = "hybrid"

    proximal = 0.0

    def report(self, client: Client) -> tuple[torch.Tensor, float]:
        """The moment vector (``[P·Y]``, twice that for hybrid) and the confidence of one client's current model."""
        graph = client.observed
        truth, train, adjacency = graph.train_truth(), graph.train, graph.adjacency()
        labels = propagate_labels(client.probabilities(), truth, train, adjacency, self.k, self.alpha)
        sharp = torch.where(train[:, None], truth, torch.softmax(labels, dim=1))
        flat = torch.where(train[:, None], truth, torch.softmax(labels / self.temperature, dim=1))
        certainty = (math.exp(-1) + flat * torch.log(flat + 1e-8)).sum(dim=1)
        return MOMENTS[self.moments](sharp, self.num_moments), float((adjacency.sum(dim=1) * certainty).sum())

    def mixing(self, clients: list[Client], shares: list[float]) -> torch.Tensor:
        reports = [self.report(client) for client in clients]
        return similarity_mixing([moments for moments, _ in reports], [weight for _, weight in reports], self.threshold)


def similarity_mixing(vectors: list[torch.Tensor], weights: list[float], threshold: float) -> torch.Tensor:
    """Row i: the weights, normalised, of i and of all j whose vector has a cosine of at least ``threshold`` to i's."""
    matrix = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for i, vector in enumerate(vectors):
        cluster = [j for j, other in enumerate(vectors) if j == i or cosine(vector, other) >= threshold]
        matrix[i, cluster] = torch.tensor(normalize([weights[j] for j in cluster]), dtype=torch.float64)
    return matrix


def mix(matrix: torch.Tensor, uploads: list[Parameters]) -> list[Parameters]:
    """Row i of M applied to the uploads; clients whose rows are alike are handed the same tensors."""
    done: dict[tuple[float, ...], Parameters] = {}
    rows = [tuple(row) for row in matrix.tolist()]
    for row in rows:
        if row not in done:
            done[row] = combine(list(row), uploads)
    return [done[row] for row in rows]


def train_all(clients: list[Client], method, epochs: int, trip: int) -> list[Parameters]:
    """Local training of every client from the model it holds; copies of what came out."""
    for client in clients:
        client.train(epochs, trip, method.proximal)
    return [client.parameters() for client in clients]


def aggregate(clients: list[Client], method, trained: list[Parameters], shares: list[float]):
    """The server's step and the download: the mixing matrix and each client's received parameters, which it now holds."""
    matrix = method.mixing(clients, shares)
    received = mix(matrix, trained)
    for client, parameters in zip(clients, received, strict=True):
        client.load(parameters)
    return matrix, received


@dataclass(frozen=True)
class Round:
    """One round: per client the parameters after training and after aggregation, the (val, test) correct counts of
    both, and M ``[C, C]`` float64."""

    trained: list[Parameters]
    received: list[Parameters]
    trained_counts: list[tuple[int, int]]
    received_counts: list[tuple[int, int]]
    mixing: torch.Tensor


def run_sync(
    federation: Federation,
    method,
    initial: Parameters,
    *,
    rounds: int,
    local_epochs: int = 1,
    agg_weight: str = "train",
    **settings,
) -> list[Round]:
    """Run ``rounds`` rounds with all clients and return each one's trace.

    Args:
        method: a :class:`Local`, :class:`FedAvg`, :class:`FedProx` or :class:`FedGTA`, or anything with ``proximal`` and
            ``mixing(clients, shares)``.
        initial: the common first parameters by name (see :func:`tests.reference.models.read_parameters`).
        agg_weight: a key of ``AGG_WEIGHTS``: what a client's share is proportional to.
        settings: ``dropout``, ``lr``, ``weight_decay``, ``seed``, as in :class:`tests.reference.training.Client`.
    """
    clients = make_clients(federation, initial, **settings)
    shares = normalize([AGG_WEIGHTS[agg_weight](client) for client in clients])
    trace = []
    for number in range(rounds):
        trained = train_all(clients, method, local_epochs, number)
        trained_counts = [client.count_correct() for client in clients]
        matrix, received = aggregate(clients, method, trained, shares)
        received_counts = [client.count_correct() for client in clients]
        trace.append(Round(trained, received, trained_counts, received_counts, matrix))
    return trace
