"""Equal shards with the same mix of labels everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split
from fgl_bench.utils.seeding import generator


@dataclass
class IID(Split):
    """Shuffled nodes, sorted by label, dealt in turn: sizes differ by at most one, in all and within every class."""

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        shuffled = generator(seed, "partition", "iid").permutation(graph.num_nodes)
        part = np.empty(graph.num_nodes, dtype=np.int64)
        part[shuffled[np.argsort(graph.strata[shuffled], kind="stable")]] = np.arange(graph.num_nodes) % num_clients
        return part
