"""METIS (Karypis and Kumar, 1998): balanced parts with few edges between them, one part a client."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fgl_bench.data.canonical import adjacency
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split
from fgl_bench.utils.seeding import derive_seed


def metis_parts(graph: Graph, num_parts: int, seed: int | None) -> np.ndarray:
    """``[N]`` int64 part of every node; some parts may be empty on tiny graphs.

    Args:
        seed: None leaves METIS its own, a constant.

    The neighbor lists are sorted, since their order changes the result, and the seed is hashed, since METIS treats
    its seeds 0 and 1 alike. METIS takes 32-bit seeds.
    """
    if num_parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int64)
    import pymetis

    matrix = adjacency(graph.edges, graph.num_nodes)
    options = pymetis.Options() if seed is None else pymetis.Options(seed=derive_seed(seed, "partition", "metis") % 2**31)
    lists = pymetis.CSRAdjacency(adj_starts=matrix.indptr, adjacent=matrix.indices)
    _, parts = pymetis.part_graph(num_parts, adjacency=lists, options=options)
    return np.asarray(parts, dtype=np.int64)


@dataclass
class Metis(Split):
    """As many METIS parts as clients.

    Attributes:
        seeded: METIS gets a seed. Otherwise it is called without any option, as in OpenFGL, and all repetitions have one partition:
            that of ``pymetis.part_graph`` on the graph as networkx has it.
    """

    seeded: bool = field(default=True, kw_only=True)

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        return metis_parts(graph, num_clients, seed if self.seeded else None)
