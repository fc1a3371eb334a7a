"""Label skew: every class is shared out among the clients in Dirichlet proportions (Hsu et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fgl_bench.data.checks import check_between, check_choice
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.utils.seeding import generator


@dataclass
class Dirichlet(Split):
    """Client sizes vary freely; a client that drew no node gets half of the largest one.

    With ``min_nodes`` above one, shares are drawn again (up to ``TRIES`` times) until every client has that number of nodes; then the
    largest clients give nodes away.

    Attributes:
        alpha: concentration; small values give clients of few classes.
        min_nodes: fewest nodes of a client.
        shares: of each class among the clients (``per_class``), or of the classes in each client, by which every class is then
            shared out (``per_client``, the code of FedAAS: sizes vary less).
    """

    ranges: ClassVar[dict[str, Range]] = {"alpha": at_least(1e-3), "min_nodes": at_least(1)}

    alpha: float
    min_nodes: int
    shares: str

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        check_between("split.alpha", self.alpha, 1e-3, float("inf"))
        check_choice("split.shares", self.shares, SHARES)
        if not 1 <= self.min_nodes <= graph.num_nodes // num_clients:
            most = graph.num_nodes // num_clients
            raise UserError(f"split.min_nodes={self.min_nodes}: must be from 1 to {most}, the nodes there are for each client")
        rng = generator(seed, "partition", "dirichlet")
        shuffled = rng.permutation(graph.num_nodes)
        order = shuffled[np.argsort(graph.strata[shuffled], kind="stable")]
        _, first, count = np.unique(graph.strata[order], return_index=True, return_counts=True)
        for _ in range(TRIES):
            part = np.empty(graph.num_nodes, dtype=np.int64)
            for start, size, share in zip(first, count, SHARES[self.shares](rng, self.alpha, first.size, num_clients), strict=True):
                bounds = np.round(np.cumsum(share)[:-1] * size)
                part[order[start : start + size]] = np.searchsorted(bounds, np.arange(size), side="right")
            if self.min_nodes == 1 or np.bincount(part, minlength=num_clients).min() >= self.min_nodes:
                return part
        return _level(part, num_clients, self.min_nodes, rng)


def _level(part: np.ndarray, num_clients: int, fewest: int, rng: np.random.Generator) -> np.ndarray:
    """``part`` with nodes drawn from whichever client is largest until nobody has fewer than ``fewest``."""
    sizes = np.bincount(part, minlength=num_clients)
    for poor in np.flatnonzero(sizes < fewest):
        while sizes[poor] < fewest:
            rich = int(sizes.argmax())
            moved = rng.choice(np.flatnonzero(part == rich), min(fewest - sizes[poor], sizes[rich] - fewest), replace=False)
            part[moved] = poor
            sizes[poor] += moved.size
            sizes[rich] -= moved.size
    return part


def _per_class(rng: np.random.Generator, alpha: float, classes: int, clients: int) -> np.ndarray:
    return rng.dirichlet(np.full(clients, alpha), size=classes)


def _per_client(rng: np.random.Generator, alpha: float, classes: int, clients: int) -> np.ndarray:
    mixtures = rng.dirichlet(np.full(classes, alpha), size=clients).T
    return mixtures / np.maximum(mixtures.sum(1, keepdims=True), 1e-300)


TRIES = 100
SHARES = {"per_class": _per_class, "per_client": _per_client}
