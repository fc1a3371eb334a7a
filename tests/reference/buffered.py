"""The buffered methods of the semi-asynchronous loop, FedBuff and FedSA-GCL, and the messages they exchange."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from .models import Parameters, combine
from .sync import AGG_WEIGHTS
from .training import Client, cosine, normalize


class Message(NamedTuple):
    """What a client downloads. ``confidence`` is there only in a ClusterCast push, which is merged, not copied."""

    payload: Parameters
    version: int
    confidence: float | None = None


class Upload(NamedTuple):
    """A finished trip: what it started from (``base``) and what it came to, with the client's report."""

    client: int
    base: Message
    parameters: Parameters
    report: Any


class Step(NamedTuple):
    """A server step's outcome: messages to the uploaders and to others, and what led to them.

    ``weights[i]`` is uploader i's row of M over its cluster; ``pushed_by[j]`` the uploader whose model j is pushed.
    """

    replies: dict[int, Message]
    pushes: dict[int, Message]
    weights: dict[int, dict[int, float]]
    pushed_by: dict[int, int]


@dataclass
class FedBuff:
    """Buffered asynchronous aggregation of deltas (Nguyen et al., AISTATS 2022).

    Args:
        eta: the server's learning rate.
        exponent: an update s versions old counts (1 + s)^-exponent; 0 turns the scaling off.
        weighting: a key of ``AGG_WEIGHTS``; the buffer's weights are scaled to mean one.
    """

    eta: float = 1.0
    exponent: float = 0.5
    weighting: str = "uniform"

    policy = "wait"
    extra_up = 1
    extra_down = 1

    def start(self, initial: Parameters, clients: list) -> None:
        self.model = {name: tensor.clone() for name, tensor in initial.items()}
        self.importance = [AGG_WEIGHTS[self.weighting](client) for client in clients]

    def begin(self, message: Message, own: Parameters, report: None) -> Parameters:
        return message.payload

    def report(self, client) -> None:
        return None

    def step(self, batch: list[Upload], version: int) -> Step:
        importance = normalize([self.importance[upload.client] for upload in batch])
        moved = dict(self.model)
        for upload, weight in zip(batch, importance, strict=True):
            staleness = version - 1 - upload.base.version
            factor = self.eta * weight * (1 + staleness) ** -self.exponent
            for name, tensor in upload.parameters.items():
                moved[name] = moved[name] + factor * (tensor - upload.base.payload[name])
        self.model = moved
        return Step({upload.client: Message(moved, version) for upload in batch}, {}, {}, {})


def soft_label_features(probabilities: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """``[Y, Y]``: sum over directed edges (u, v) of d_u d_v times the outer product of u's and v's soft labels."""
    degree = torch.bincount(edges[0], minlength=len(probabilities)).to(probabilities.dtype)
    scaled = degree[:, None] * probabilities
    return scaled[edges[0]].t() @ scaled[edges[1]]


def smoothness_confidence(probabilities: torch.Tensor, adjacency: torch.Tensor, steps: int, keep: float) -> float:
    """Degree-weighted certainty of the labels smoothed ``steps`` times over D^-1/2 A D^-1/2 (no self loops)."""
    degree = adjacency.sum(dim=1)
    scale = torch.where(degree > 0, degree, torch.ones_like(degree)).rsqrt() * (degree > 0)
    walk = scale[:, None] * adjacency * scale[None, :]
    labels = probabilities
    for _ in range(steps):
        labels = keep * probabilities + (1 - keep) * walk @ labels
    chance = labels.clamp(1e-8, 1.0)
    return float((degree * (math.exp(-1) + chance * chance.log()).sum(dim=1)).sum())


class Knowledge(NamedTuple):
    """What the server keeps of a client's last upload."""

    parameters: Parameters
    features: torch.Tensor
    confidence: float
    base_version: int


@dataclass
class FedSAGCL:
    """Semi-asynchronous clustered federation (Yuan et al., arXiv 2507.18219, Algorithms 1 and 2).

    Args:
        theta_c: clients whose soft-label features have at least this cosine form an uploader's cluster.
        alpha: exponent of the staleness weight (1 + s)^-alpha.
        k, lam: steps of the label propagation and the share of the predictions kept in each (lambda).
        clustercast: push an uploader's aggregate to members of its cluster that did not upload; the most similar
            uploader's where there are several, the lowest-numbered among equals.
        weighting: ``confidence`` (LSC times staleness), or the ablation's: a key of ``AGG_WEIGHTS``, without staleness.
    """

    theta_c: float = 0.5
    alpha: float = 0.5
    k: int = 5
    lam: float = 0.5
    clustercast: bool = True
    weighting: str = "confidence"

    extra_down = 1

    @property
    def policy(self) -> str:
        return "clustercast" if self.clustercast else "wait"

    def start(self, initial: Parameters, clients: list) -> None:
        self.known: dict[int, Knowledge] = {}
        self.extra_up = clients[0].observed.num_classes ** 2 + 2
        self.importance = None
        if self.weighting in AGG_WEIGHTS:
            self.importance = [AGG_WEIGHTS[self.weighting](client) for client in clients]

    def report(self, client: Client) -> tuple[torch.Tensor, float]:
        probabilities = client.probabilities()
        features = soft_label_features(probabilities, client.observed.edge_index)
        return features, smoothness_confidence(probabilities, client.observed.adjacency(), self.k, self.lam)

    def begin(self, message: Message, own: Parameters, report: tuple[torch.Tensor, float]) -> Parameters:
        """A reply replaces the client's model; a push is merged with it by confidence (eq. 9)."""
        if message.confidence is None:
            return message.payload
        share = normalize([message.confidence, report[1]])
        return combine(share, [message.payload, own])

    def weight(self, client: int, version: int) -> float:
        if self.importance is not None:
            return self.importance[client]
        entry = self.known[client]
        return entry.confidence * (1 + version - 1 - entry.base_version) ** -self.alpha

    def step(self, batch: list[Upload], version: int) -> Step:
        for upload in batch:
            self.known[upload.client] = Knowledge(upload.parameters, *upload.report, upload.base.version)
        uploaders = sorted({upload.client for upload in batch})
        weights, replies, total = {}, {}, {}
        offers: dict[int, list[tuple[float, int]]] = {}
        for i in uploaders:
            similarity = {j: cosine(self.known[i].features, entry.features) for j, entry in sorted(self.known.items())}
            cluster = [j for j, value in similarity.items() if j == i or value >= self.theta_c]
            row = normalize([self.weight(j, version) for j in cluster])
            weights[i] = dict(zip(cluster, row, strict=True))
            replies[i] = Message(combine(row, [self.known[j].parameters for j in cluster]), version)
            total[i] = sum(self.known[j].confidence for j in cluster)
            for j in cluster:
                if self.clustercast and j not in uploaders:
                    offers.setdefault(j, []).append((-similarity[j], i))
        pushed_by = {j: min(candidates)[1] for j, candidates in offers.items()}
        pushes = {j: Message(replies[i].payload, version, total[i]) for j, i in pushed_by.items()}
        return Step(replies, pushes, weights, pushed_by)
