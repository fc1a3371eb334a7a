"""FedSA-GCL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import SemiAsyncServer, Traffic
from fgl_bench.algorithms.powers import Comparing
from fgl_bench.algorithms.records import Message, Server, Upload
from fgl_bench.algorithms.topology import (
    hybrid_moments,
    labels_propagated,
    propagate,
    smoothing_confidence,
    soft_label_features,
    with_truth,
)
from fgl_bench.engine.batch import plain_operator
from fgl_bench.engine.mixing import cosine
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import SHARE, Range, above, at_least


@dataclass
class FedSAGCL(SemiAsyncServer, Comparing):
    """Semi-asynchronous clustered averaging with ClusterCast (Yuan et al., arXiv 2507.18219, algorithms 1 and 2).

    A client reports the soft-label feature matrix SFM of its trained model (eq. 4) and its label-smoothness confidence LSC
    (eqs. 6, 7). After K uploads the server makes version t and, for every uploader i, mixes the last uploads of its cluster
    ``I_i = {i} union {j : cos(SFM_i, SFM_j) >= threshold}`` with weights ``LSC_j (1 + s_j)^-a`` (eq. 8), ``s_j`` being the
    versions made since j's trip began. ClusterCast pushes the result to members of the cluster that did not upload; they
    keep only the newest message and, when their running trip ends, merge it with the model they trained (eq. 9,
    ``beta = LSC~ / (LSC~ + LSC_own)``) and start again without waiting.

    Resolutions of what the paper leaves open or misprints: staleness ``(1 + s)^-a`` for ``(t - tau - 1)^-a``; 1/e inside the class sum of
    eq. 7; the LSC's own reading (``lsc=fedgta``: that of FedGTA's code, which it cites); statistics of the model just trained (algorithm
    2), not of the aggregate (eq. 3); a client covered by several clusters is sent the model of the most similar uploader; K a quarter of
    the clients (5 at 20, implied by tables 6 and 7); FedGTA's k = 5 and lambda = 0.5.

    Attributes:
        threshold: cosine above which two clients are similar (theta).
        buffer: arrivals per server step K; null means a quarter of the clients.
        steps, keep: propagation steps k and weight of the start (lambda) in eq. 6.
        staleness_exponent: a.
        staleness: ``one_plus``, (1 + s)^-a, or ``clamp``, max(s, 1)^-a.
        lsc: ``paper``, eqs. 6 and 7 of the predictions alone; or ``fedgta``, as FedGTA's code: training nodes start from the truth, get it
            again after every step of a propagation with self-loops, and have it in eq. 7, after a softmax.
        lsc_temperature: temperature of a softmax before eq. 7; null takes the propagated labels (``lsc=fedgta``: 20, as in FedGTA's code).
        weights: ``lsc`` (eq. 8), ``samples`` (n_j) or ``uniform``, the last two without staleness (ablation).
        clustercast: push to similar clients that did not upload.
        push: which uploader's model a covered client is sent: ``most_similar``, or ``last`` in algorithm 1's loop over uploaders.
        merge: ``at_begin`` of the next trip (algorithm 2), or ``before_upload`` (the prose).
        clusters: ``sfm``, or ``moments``: FedGTA's hybrid moments (ablation).
        orders: highest moment, with ``clusters=moments``.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    multilabel: ClassVar[bool] = False
    keeps_uploads: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        "threshold": at_least(-1), "buffer": at_least(1), "steps": at_least(0), "keep": SHARE, "staleness_exponent": at_least(0),
        "lsc_temperature": above(0), "orders": at_least(1),
    }  # fmt: skip

    threshold: float
    buffer: int | None
    steps: int
    keep: float
    staleness_exponent: float
    staleness: Literal["one_plus", "clamp"]
    lsc: Literal["paper", "fedgta"]
    lsc_temperature: float | None
    weights: Literal["lsc", "samples", "uniform"]
    clustercast: bool
    push: Literal["most_similar", "last"]
    merge: Literal["at_begin", "before_upload"]
    clusters: Literal["sfm", "moments"]
    orders: int

    @property
    def merges_before_upload(self) -> bool:
        return self.merge == "before_upload"

    def report(self, trips: Trips) -> dict[str, Tensor]:
        soft = torch.softmax(trips.output.logits, -1)
        confidence = smoothing_confidence(SPREAD[self.lsc](self, soft, trips), trips.batch)
        return {"cluster": CLUSTERS[self.clusters](self, soft, trips), "confidence": confidence}

    def serve(self, server: Server, arrivals: Sequence[Upload]) -> list[Message]:
        uploaders = sorted({upload.client for upload in arrivals})
        similarity = self._similarity(server.reports["cluster"], uploaders)
        cluster = (similarity >= self.threshold) & server.known
        cluster[np.arange(len(uploaders)), uploaders] = True

        weights = np.where(cluster, WEIGHTS[self.weights](self, server)[None], 0.0)
        total = weights.sum(1, keepdims=True)
        uniform = cluster / cluster.sum(1, keepdims=True)
        rows = np.where(total > 1e-12, weights / np.where(total > 1e-12, total, 1.0), uniform)
        models = (put(rows, server.uploads.device, server.uploads.dtype) @ server.uploads).unbind()
        messages = [Message(client, model) for client, model in zip(uploaders, models, strict=True)]
        if not self.clustercast:
            return messages

        confidence = np.where(cluster, server.reports["confidence"][None], 0.0).sum(1)
        covered = cluster.copy()
        covered[:, uploaders] = False
        pushed, senders = np.flatnonzero(covered.any(0)), PUSHES[self.push](covered, similarity)
        for client, sender in zip(pushed.tolist(), senders[pushed].tolist(), strict=True):
            messages.append(Message(client, models[sender], float(confidence[sender])))
        return messages

    def similarity(self, reports: dict[str, Tensor]) -> Tensor:
        return cosine(reports["cluster"].flatten(2))

    def _similarity(self, features: np.ndarray, uploaders: list[int]) -> np.ndarray:
        """Return cosines ``[U, C]`` between cluster features of uploaders and all clients; 0 without features."""
        flat = features.reshape(len(features), -1)
        unit = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)
        return np.clip(unit[uploaders] @ unit.T, -1.0, 1.0)

    def message_share(self, message: Message, reports: dict[str, float]) -> float:
        if message.confidence is None:
            return 1.0
        total = message.confidence + reports["confidence"]
        return message.confidence / total if total > 1e-12 else 0.5

    def traffic(self) -> Traffic:
        model, classes = self.setting.layout.count, self.setting.num_classes
        features = {"sfm": classes * classes, "moments": 2 * self.orders * classes}[self.clusters]
        return Traffic(
            upload={"model": model, "cluster": features, "confidence": 1, "version": 1},
            download={"model": model, "version": 1},
            push={"model": model, "version": 1, "confidence": 1},
        )


def _paper(method: FedSAGCL, soft: Tensor, trips: Trips) -> Tensor:
    spread = propagate(soft, trips.batch, plain_operator, method.steps, method.keep)
    return spread if method.lsc_temperature is None else torch.softmax(spread / method.lsc_temperature, -1)


def _fedgta(method: FedSAGCL, soft: Tensor, trips: Trips) -> Tensor:
    spread = labels_propagated(soft, trips.batch, method.steps, 1 - method.keep)
    temperature = TEMPERATURE if method.lsc_temperature is None else method.lsc_temperature
    return with_truth(torch.softmax(spread / temperature, -1), trips.batch)


def _sfm(method: FedSAGCL, soft: Tensor, trips: Trips) -> Tensor:
    return soft_label_features(soft, trips.batch)


def _moments(method: FedSAGCL, soft: Tensor, trips: Trips) -> Tensor:
    spread = torch.softmax(labels_propagated(soft, trips.batch, method.steps, 1 - method.keep), -1)
    return torch.cat(list(hybrid_moments(with_truth(spread, trips.batch), trips.batch, method.orders).values()), 1)


def _lsc(method: FedSAGCL, server: Server) -> np.ndarray:
    stale = np.maximum(server.version - 1 - server.base_version, 0)
    return server.reports["confidence"] * STALENESS[method.staleness](stale) ** -method.staleness_exponent


TEMPERATURE = 20.0  # of FedGTA's code
SPREAD = {"paper": _paper, "fedgta": _fedgta}
CLUSTERS = {"sfm": _sfm, "moments": _moments}
WEIGHTS = {
    "lsc": _lsc,
    "samples": lambda method, server: server.weights,
    "uniform": lambda method, server: np.ones_like(server.weights),
}
STALENESS = {"one_plus": lambda s: 1.0 + s, "clamp": lambda s: np.maximum(s, 1.0)}
PUSHES = {  # covers [U, C], similarity [U, C] to the sender [C]
    "most_similar": lambda covers, similarity: np.argmax(np.where(covers, similarity, -np.inf), 0),
    "last": lambda covers, similarity: len(covers) - 1 - np.argmax(covers[::-1], 0),
}
