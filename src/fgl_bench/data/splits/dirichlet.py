"""Label skew: every class is shared out among the clients in Dirichlet proportions (Hsu et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgl_bench.data.checks import check_between
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split
from fgl_bench.seeding import generator


@dataclass
class Dirichlet(Split):
    """Client sizes vary freely; a client that drew no node gets half of the largest one.

    Attributes:
        alpha: concentration; small values give clients of few classes.
    """

    alpha: float

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        check_between("split.alpha", self.alpha, 1e-3, float("inf"))
        rng = generator(seed, "partition", "dirichlet")
        shuffled = rng.permutation(graph.num_nodes)
        order = shuffled[np.argsort(graph.labels[shuffled], kind="stable")]
        _, first, count = np.unique(graph.labels[order], return_index=True, return_counts=True)
        shares = rng.dirichlet(np.full(num_clients, self.alpha), size=first.size)
        part = np.empty(graph.num_nodes, dtype=np.int64)
        for start, size, share in zip(first, count, shares, strict=True):
            bounds = np.round(np.cumsum(share)[:-1] * size)
            part[order[start : start + size]] = np.searchsorted(bounds, np.arange(size), side="right")
        return part
