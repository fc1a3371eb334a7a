"""Label skew of graphs: Dirichlet proportions among the clients that have not had their share yet (OpenFGL's simulation of this name)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split
from fgl_bench.errors import Range, UserError, above, at_least
from fgl_bench.utils.seeding import generator

TRIES = 100


@dataclass
class LabelSkew(Split):
    """Class by class, clients with fewer than N / C graphs (or nodes) share its graphs in Dirichlet proportions.

    All is drawn again, up to ``TRIES`` times, until every client has ``least`` of them.

    Attributes:
        alpha: concentration; small values give clients of few classes.
        least: fewest graphs (or nodes) of a client.
    """

    ranges: ClassVar[dict[str, Range]] = {"alpha": above(0), "least": at_least(1)}

    alpha: float
    least: int

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        rng, strata = generator(seed, "partition", "label_skew"), graph.strata
        for _ in range(TRIES):
            part, sizes = np.empty(strata.size, dtype=np.int64), np.zeros(num_clients, dtype=np.int64)
            for label in np.unique(strata):
                own = rng.permutation(np.flatnonzero(strata == label))
                shares = rng.dirichlet(np.full(num_clients, self.alpha)) * (sizes < strata.size / num_clients)
                if not shares.sum() > 0:  # rounded to zero
                    break
                bounds = (np.cumsum(shares / shares.sum()) * own.size).astype(int)[:-1]
                part[own] = np.searchsorted(bounds, np.arange(own.size), side="right")
                sizes = sizes + np.bincount(part[own], minlength=num_clients)
            if sizes.sum() == strata.size and sizes.min() >= self.least:
                return part
        raise UserError(
            f"split.least={self.least}: in {TRIES} draws a client had fewer; lower it or num_clients, or raise split.alpha={self.alpha:g}"
        )
