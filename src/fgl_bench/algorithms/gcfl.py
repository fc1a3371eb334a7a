"""GCFL: averaging inside clusters that are repeatedly bisected."""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import ServerRounds, Setting, Traffic
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import Range, UserError, at_least

log = logging.getLogger(__name__)
Evidence = dict[str, np.ndarray]


@dataclass
class ClusteredAveraging(ServerRounds):
    """FedAvg inside clusters that are repeatedly bisected (Xie et al., NeurIPS 2021); a subclass defines the weights of the cut.

    Let Delta_i be the update of client i. After round ``warmup`` a cluster K of more than two clients is split if
    ``|mean of Delta| < eps1`` and ``max |Delta_i| > eps2``: the cluster has converged but its members have not. It is split by the
    minimum cut (Stoer-Wagner) of :meth:`likeness`; with only zero weights all cuts are equal, and the cluster stays. Inside a cluster
    ``theta_i <- theta_i + sum_{j in K} n_j / n_K Delta_j``, which is ``M_ij = n_j / n_K``, for all members start from the same model.

    The host decides. From round ``warmup`` on, the inner products ``[C, C]`` of the updates, which determine norms, means and cosines,
    are copied to the host once per round (the only synchronization), as long as a seed has a cluster of more than two clients.

    Resolutions: all layers are shared (the original shares the convolutions of its GIN; ``shared=conv``). The thresholds are
    lengths: Adam's first steps have length ``lr sqrt(P)`` for any gradient, so clusters are rarely split with the paper's eps1 = 0.05;
    ``relative`` divides both norms by the norm of the cluster's model, and the norms of every round are logged (level debug). With
    partial participation the criterion uses this round's participants, at least three of them; the cut divides the whole cluster
    by the last known updates; a cluster's model is sent to all its members, and a cluster without participants keeps its model.

    Attributes:
        eps1, eps2: thresholds of the norm of the mean and of the largest norm.
        relative: thresholds are relative to the norm of the cluster's received model.
        warmup: rounds without a split.
        shared: ``all`` parameters are averaged and compared, or only those of convolutions (``conv``).
    """

    ranges: ClassVar[dict[str, Range]] = {"eps1": at_least(0), "eps2": at_least(0), "warmup": at_least(0)}
    unsent: ClassVar[tuple[str, ...]] = ("update", "size")  # the trained minus the received model, and its norm

    eps1: float
    eps2: float
    relative: bool
    warmup: int
    shared: Literal["all", "conv"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        seeds, clients = len(setting.seeds), setting.num_clients
        self.names = SHARED[self.shared](tuple(setting.layout.shapes))
        if self.names == ():
            raise UserError(f"algorithm.shared={self.shared}: this model has no parameter of that kind; allowed: all")
        self.count = setting.layout.count if self.names is None else sum(setting.layout.numel(name) for name in self.names)
        self.round = 0
        self.clusters = np.zeros((seeds, clients), dtype=np.int64)  # numbers of the clusters, in order of creation
        self._same_cluster: Tensor | None = None  # [S, C, C] bool, after the first split

    @abstractmethod
    def likeness(self, members: np.ndarray, evidence: Evidence) -> np.ndarray | None:
        """Return weights ``[m, m]`` of the graph to cut; None if it is too early.

        Args:
            members: the cluster's clients.
            evidence: host copies for this seed, ``[C, *]`` by name.
        """

    def evidence(self, reports: dict[str, Tensor], arrived: Tensor) -> dict[str, Tensor]:
        """Return the tensors that the host needs for a decision, ``[S, C, *]`` by name."""
        update = reports["update"].double()
        return {"product": update @ update.mT, "size": reports["size"].double()[..., None], "arrived": arrived.double()[..., None]}

    def after_split(self, seed: int) -> bool:
        """Handle the split of a cluster of seed number ``seed``; return True if more clusters may be split in this round."""
        return True

    # ---- rounds

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return {"update": self.part(trips.trained) - self.part(trips.received), "size": self.part(trips.received).norm(dim=1)}

    def part(self, theta: Tensor) -> Tensor:
        """Return the shared parameters of ``theta [k, P]``, ``[k, *]``."""
        if self.names is None:
            return theta
        return torch.cat([self.setting.layout.view(theta, name).flatten(1) for name in self.names], 1)

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        self.round += 1
        if self.round > self.warmup and any(np.bincount(row).max() > 2 for row in self.clusters):
            self._decide(self.evidence(reports, arrived))
        if self._same_cluster is None:
            return Mixing(normalize(self.setting.weights, arrived)[:, None], shared=self.names)
        support = self._same_cluster & arrived[:, None]
        weights = normalize(self.setting.weights[:, None].expand_as(support), support)
        receivers = None if self.setting.full_participation else support.any(-1)
        return Mixing(weights, receivers, self.names)

    def _decide(self, evidence: dict[str, Tensor]) -> None:
        # One tensor, one transfer.
        names, widths = list(evidence), [value.shape[2] for value in evidence.values()]
        host = torch.cat([evidence[name] for name in names], 2).cpu().numpy()
        before = self.clusters.copy()
        for s, row in enumerate(np.split(host, len(host))):
            parts = dict(zip(names, np.split(row[0], np.cumsum(widths)[:-1], axis=1), strict=True))
            self._split(s, parts)
        if (before != self.clusters).any():
            labels = torch.from_numpy(self.clusters).to(self.setting.batch.device)
            self._same_cluster = labels[:, :, None] == labels[:, None]

    def _split(self, s: int, evidence: Evidence) -> None:
        for cluster in range(self.clusters[s].max() + 1):
            members = np.flatnonzero(self.clusters[s] == cluster)
            present = members[evidence["arrived"][members, 0] > 0]
            if present.size < 3 or not self._converged(present, evidence):
                continue
            weights = self.likeness(members, evidence)
            if weights is None or not (weights[~np.eye(members.size, dtype=bool)] > 1e-12).any():
                continue
            self.clusters[s, members[minimum_cut(weights)]] = self.clusters[s].max() + 1
            if not self.after_split(s):
                break

    def _converged(self, present: np.ndarray, evidence: Evidence) -> bool:
        product = evidence["product"][np.ix_(present, present)]
        scale = evidence["size"][present, 0].mean() if self.relative else 1.0
        mean, largest = np.sqrt(max(product.mean(), 0.0)) / scale, np.sqrt(product.diagonal().max()) / scale
        log.debug("round %d, cluster of %d: mean update %.4g, largest %.4g", self.round, present.size, mean, largest)
        return bool(mean < self.eps1 and largest > self.eps2)

    def traffic(self) -> Traffic:
        return Traffic(upload={"update": self.count}, download={"model": self.count})


SHARED = {"all": lambda names: None, "conv": lambda names: tuple(name for name in names if name.startswith("conv"))}


@dataclass
class GCFL(ClusteredAveraging):
    """Clustered averaging with cuts along update directions: ``w_ij = 1 + cos(Delta_i, Delta_j)`` (Xie et al., NeurIPS 2021)."""

    by_clients: ClassVar[bool] = True

    def likeness(self, members: np.ndarray, evidence: Evidence) -> np.ndarray:
        product = evidence["product"][np.ix_(members, members)]
        norm = np.sqrt(product.diagonal().clip(min=0))
        return 1 + np.clip(product / np.maximum(np.outer(norm, norm), 1e-12), -1, 1)


def minimum_cut(weights: np.ndarray) -> np.ndarray:
    """Return one side ``[n]`` (bool, without node 0) of a minimum cut of a complete weighted graph (Stoer & Wagner, JACM 1997).

    Args:
        weights: ``[n, n]`` symmetric, non-negative, n at least 2; the diagonal is ignored. The first of equal cuts is returned.
    """
    graph = np.array(weights, dtype=np.float64)
    np.fill_diagonal(graph, 0.0)
    n = len(graph)
    merged = np.eye(n, dtype=bool)  # row v: the nodes merged into v
    left = np.arange(n)
    best, side = np.inf, merged[-1]
    while left.size > 1:
        inside, last = [left[0]], left[0]
        tied = graph[left[0]].copy()  # weight between each node and the nodes inside
        for _ in range(left.size - 1):
            outside = left[~np.isin(left, inside)]
            before, last = last, outside[np.argmax(tied[outside])]
            inside.append(last)
            tied = tied + graph[last]
        cut = graph[last, left].sum()
        if cut < best:
            best, side = cut, merged[last].copy()
        graph[before] += graph[last]
        graph[:, before] += graph[:, last]
        graph[before, before] = 0.0
        merged[before] |= merged[last]
        left = left[left != last]
    return ~side if side[0] else side
