"""FedGTA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, Traffic
from fgl_bench.algorithms.topology import hybrid_moments, labels_propagated, propagate, smoothing_confidence, with_truth
from fgl_bench.engine.batch import Batch, gcn_operator, plain_operator
from fgl_bench.engine.mixing import Mixing, cosine, normalise
from fgl_bench.engine.training import Trips

MOMENTS = {"hybrid": ("raw", "central"), "raw": ("raw",), "central": ("central",)}


@dataclass
class FedGTA(Algorithm):
    """Topology-aware personalised averaging (Li et al., PVLDB 17(1), 2023).

    After local training each client propagates its predictions k times, reports their moments m_i and their smoothing
    confidence H_i; the server clusters by moment similarity and weighs by confidence:
    ``M_ij = 1[j in I_i] H_j / sum_{k in I_i} H_k`` with ``I_i = {i} and {j : cos(m_i, m_j) >= threshold}``.

    Resolutions: label propagation of the official code (training rows start from the truth, which is added again after
    every step; ``propagation=paper`` is eq. 3, without labels); moments of the last step only; H_j, not the printed H_i, in
    the numerator of eq. 7; client i is always a member of its own cluster.

    Attributes:
        steps: propagation steps k.
        alpha: weight of the neighbours in the propagation (official code) or of the start (paper's eq. 3).
        temperature: of the softmax before the confidence.
        orders: highest moment P.
        moments: ``hybrid`` (raw and central), ``raw`` or ``central``.
        threshold: cosine above which two clients are similar.
        propagation: ``official``, ``paper`` or ``openfgl`` (zero start on unlabelled nodes, no self loops, clamped to [0, 1]).
    """

    steps: int
    alpha: float
    temperature: float
    orders: int
    moments: Literal["hybrid", "raw", "central"]
    threshold: float
    propagation: Literal["official", "paper", "openfgl"]

    def report(self, trips: Trips) -> dict[str, Tensor]:
        batch, soft = trips.batch, torch.softmax(trips.output.logits, -1)
        spread = PROPAGATIONS[self.propagation](self, soft, batch)
        sharp, flat = (with_truth(torch.softmax(spread / temperature, -1), batch) for temperature in (1.0, self.temperature))
        moments = hybrid_moments(sharp, batch, self.orders)
        return {
            "moments": torch.cat([moments[name] for name in MOMENTS[self.moments]], 1),
            "confidence": smoothing_confidence(flat, batch),
        }

    def similarity(self, reports: dict[str, Tensor]) -> Tensor:
        return cosine(reports["moments"])

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        clients = arrived.shape[1]
        similar = self.similarity(reports) >= self.threshold
        cluster = similar | torch.eye(clients, dtype=torch.bool, device=arrived.device)
        # Only this round's participants are mixed, and only they receive.
        cluster = cluster & arrived[:, None, :]
        weights = normalise(reports["confidence"][:, None].expand(-1, clients, -1), cluster)
        return Mixing(weights, receivers=None if self.setting.full_participation else arrived)

    def traffic(self) -> Traffic:
        size = len(MOMENTS[self.moments]) * self.orders * self.setting.num_classes
        model = {"model": self.setting.layout.count}
        return Traffic(upload={**model, "moments": size, "confidence": 1}, download=model)


def _official(method: FedGTA, soft: Tensor, batch: Batch) -> Tensor:
    return labels_propagated(soft, batch, method.steps, method.alpha)


def _paper(method: FedGTA, soft: Tensor, batch: Batch) -> Tensor:
    return propagate(soft, batch, gcn_operator, method.steps, method.alpha)


def _openfgl(method: FedGTA, soft: Tensor, batch: Batch) -> Tensor:
    start = soft * batch.train[..., None]
    matrix, labels = batch.operator(plain_operator), start
    for _ in range(method.steps):
        labels = (method.alpha * (matrix @ labels) + (1 - method.alpha) * start).clamp(0, 1)
    return labels


PROPAGATIONS = {"official": _official, "paper": _paper, "openfgl": _openfgl}
