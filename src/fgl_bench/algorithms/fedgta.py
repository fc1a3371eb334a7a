"""FedGTA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import ServerRounds, Traffic
from fgl_bench.algorithms.powers import Comparing
from fgl_bench.algorithms.topology import hybrid_moments, labels_propagated, propagate, smoothing_confidence, with_truth
from fgl_bench.engine.batch import Batch, gcn_operator, plain_operator
from fgl_bench.engine.mixing import Mixing, cosine, normalize
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import SHARE, Range, above, at_least

MOMENTS = {"hybrid": ("raw", "central"), "raw": ("raw",), "central": ("central",), "none": ()}


@dataclass
class FedGTA(ServerRounds, Comparing):
    """Topology-aware personalized averaging (Li et al., PVLDB 17(1), 2023).

    After local training each client propagates its predictions k times, reports their moments m_i and their smoothing
    confidence H_i; the server clusters by moment similarity and weighs by confidence:
    ``M_ij = 1[j in I_i] H_j / sum_{k in I_i} H_k`` with ``I_i = {i} union {j : cos(m_i, m_j) > threshold}``.

    Resolutions: label propagation of the official code (training rows start from the truth, which is added again after every step;
    ``propagation=paper`` is eq. 3, without labels); moments of the last step only; H_j, not the printed H_i, in the numerator of eq. 7;
    client i is always a member of its own cluster, others are above the threshold, not at it, as in the code; of the clients of a round
    only, and an absent one keeps its model. The paper does not say what stands in for a part that its table 6 leaves out: here, all
    participants are one cluster (``moments=none``), members are weighed as in FedAvg (``weights=samples``). What is not used is neither
    computed nor sent; without both parts, and with all clients in every round, the method is FedAvg.

    Attributes:
        steps: propagation steps k.
        alpha: weight of the neighbors in the propagation (official code) or of the start (paper's eq. 3).
        temperature: of the softmax before the confidence.
        orders: highest moment P.
        moments: ``hybrid`` (raw and central), ``raw``, ``central``, or ``none`` (ablation).
        threshold: cosine above which two clients are similar.
        propagation: ``official``, ``paper`` or ``openfgl`` (zero start on unlabeled nodes, no self loops, clamped to [0, 1]).
        weights: of a cluster's members: ``confidence``, or ``samples`` (n_j) or ``uniform`` (ablation).
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    by_clients: ClassVar[bool] = True
    multilabel: ClassVar[bool] = False
    replayable: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        "steps": at_least(0), "alpha": SHARE, "temperature": above(0), "orders": at_least(1), "threshold": at_least(-1),
    }  # fmt: skip

    steps: int
    alpha: float
    temperature: float
    orders: int
    moments: Literal["hybrid", "raw", "central", "none"]
    threshold: float
    propagation: Literal["official", "paper", "openfgl"]
    weights: Literal["confidence", "samples", "uniform"]

    def report(self, trips: Trips) -> dict[str, Tensor]:
        kinds, confident = MOMENTS[self.moments], self.weights == "confidence"
        if not kinds and not confident:
            return {}
        batch, soft = trips.batch, torch.softmax(trips.output.logits, -1)
        spread, reports = PROPAGATIONS[self.propagation](self, soft, batch), {}
        if kinds:
            moments = hybrid_moments(with_truth(torch.softmax(spread, -1), batch), batch, self.orders)
            reports["moments"] = torch.cat([moments[name] for name in kinds], 1)
        if confident:
            reports["confidence"] = smoothing_confidence(with_truth(torch.softmax(spread / self.temperature, -1), batch), batch)
        return reports

    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        return cosine(reports["moments"]) if "moments" in reports else None

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        weights, receivers = WEIGHTS[self.weights](self, reports), None if self.setting.full_participation else arrived
        similarity = self.similarity(reports)
        if similarity is None:
            return Mixing(normalize(weights, arrived)[:, None], receivers)
        clients = arrived.shape[1]
        cluster = (similarity > self.threshold) | torch.eye(clients, dtype=torch.bool, device=arrived.device)
        # Only this round's participants are mixed, and only they receive.
        cluster = cluster & arrived[:, None, :]
        return Mixing(normalize(weights[:, None].expand(-1, clients, -1), cluster), receivers)

    def traffic(self) -> Traffic:
        model, parts = {"model": self.setting.layout.count}, {}
        if MOMENTS[self.moments]:
            parts["moments"] = len(MOMENTS[self.moments]) * self.orders * self.setting.num_classes
        if self.weights == "confidence":
            parts["confidence"] = 1
        return Traffic(upload={**model, **parts}, download=model)


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
WEIGHTS = {
    "confidence": lambda method, reports: reports["confidence"],
    "samples": lambda method, reports: method.setting.weights,
    "uniform": lambda method, reports: torch.ones_like(method.setting.weights),
}
