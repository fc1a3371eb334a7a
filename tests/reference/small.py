"""Small federations made by hand: clients of different sizes, with the awkward cases that real splits contain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.utils.seeding import generator


@dataclass(frozen=True)
class SmallSchedule:
    """Stragglers of a test: ``lag[i]`` cycles per trip (1 for fast clients), jittered by up to +-``jitter``."""

    lag: tuple[int, ...]
    priority: tuple[int, ...]
    seed: int = 0
    jitter: float = 0.0

    @property
    def slow(self) -> tuple[int, ...]:
        return tuple(i for i, lag in enumerate(self.lag) if lag > 1)

    def duration(self, client: int, trip: int) -> float:
        draw = generator(self.seed, "duration", client, trip).random() if self.jitter else 0.5
        return self.lag[client] * (1 + self.jitter * (2 * draw - 1))


def random_schedule(count: int, seed: int, share: float = 0.3, jitter: float = 0.1) -> SmallSchedule:
    """A share of the clients lags 2 to 5 cycles."""
    draw = generator(seed, "schedule")
    slow = set(draw.permutation(count)[: round(share * count)].tolist())
    lag = tuple(int(draw.integers(2, 6)) if i in slow else 1 for i in range(count))
    return SmallSchedule(lag, tuple(draw.permutation(count).tolist()), seed, jitter)


def client_graph(
    draw: np.random.Generator, size: int, first: int, *, num_classes: int, num_features: int, chance: float, absent: int | None = None,
    isolated: int = 0, train_share: float = 0.3, sparse: bool = False,
) -> ClientGraph:  # fmt: skip
    """One random client: homophilous edges (none if ``chance`` is 0), ``isolated`` nodes cut off, class ``absent`` missing."""
    classes = np.array([c for c in range(num_classes) if c != absent])
    labels = draw.choice(classes, size)
    alike = labels[:, None] == labels[None, :]
    upper = np.triu(draw.random((size, size)) < np.where(alike, chance, 0.2 * chance), 1)
    upper[:isolated] = upper[:, :isolated] = False
    edges = np.stack(np.nonzero(upper | upper.T)).astype(np.int64)
    centres = np.random.default_rng(7).normal(size=(num_classes, num_features))
    features = (centres[labels] + draw.normal(size=(size, num_features))).astype(np.float32)
    features[draw.random(features.shape) < 0.5] = 0.0
    order = draw.permutation(size)
    num_train = max(1, round(train_share * size)) if train_share else 0
    masks = np.zeros((3, size), dtype=bool)
    parts = np.split(order, [num_train, num_train + (size - num_train) // 2])
    for mask, part in zip(masks, parts, strict=True):
        mask[part] = True
    return ClientGraph(np.arange(first, first + size), sp.csr_matrix(features) if sparse else features, edges, labels, *masks)


def small_federation(seed: int = 0, clients: int = 5, num_classes: int = 3, num_features: int = 6, sparse: bool = False) -> Federation:
    """Clients of 7 to 30 nodes; the second has no edges, the third misses a class, the last no training nodes.

    Every client's first two nodes are isolated.
    """
    draw = generator(seed, "small federation")
    graphs, first = [], 0
    for number in range(clients):
        size = int(draw.integers(7, 31))
        graphs.append(
            client_graph(
                draw, size, first, num_classes=num_classes, num_features=num_features, chance=0.0 if number == 1 else 0.4,
                absent=0 if number == 2 else None, isolated=2, train_share=0.0 if number == clients - 1 > 2 else 0.3, sparse=sparse,
            )
        )  # fmt: skip
        first += size
    return Federation("small", seed, num_classes, num_features, tuple(graphs), tuple(graphs), np.zeros((2, 0), np.int64), "by hand")
