"""Louvain communities (Blondel et al., 2008), long ones cut, dealt to clients by size: OpenFGL's rule without its faults."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.canonical import adjacency
from fgl_bench.data.checks import check_between, check_choice
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split, as_parts, members
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.utils.seeding import derive_seed

SLOW_ABOVE = 50_000
"""Nodes from which python-louvain takes minutes."""

log = logging.getLogger(__name__)


def python_louvain(graph: Graph, resolution: float, seed: int) -> np.ndarray:
    """``[N]`` community of every node, by python-louvain (pure Python; what the papers used)."""
    import community
    import networkx

    if graph.num_nodes > SLOW_ABOVE:
        log.warning("python-louvain takes minutes on %d nodes; split.backend=igraph takes seconds", graph.num_nodes)
    network = networkx.from_scipy_sparse_array(sp.csr_array(adjacency(graph.edges, graph.num_nodes)))
    found = community.best_partition(network, resolution=resolution, random_state=seed % 2**32)
    return np.fromiter((found[node] for node in range(graph.num_nodes)), dtype=np.int64, count=graph.num_nodes)


def igraph_multilevel(graph: Graph, resolution: float, seed: int) -> np.ndarray:
    """``[N]`` community of every node, by igraph's multilevel method: the same algorithm in C."""
    try:
        import igraph
    except ImportError as error:
        raise UserError("split.backend=igraph needs a package: pip install 'fgl-bench[igraph]'; or split.backend=python_louvain") from error

    forward = graph.edges[0] < graph.edges[1]
    network = igraph.Graph(n=graph.num_nodes, edges=graph.edges[:, forward].T)
    igraph.set_random_number_generator(random.Random(seed))
    try:
        found = network.community_multilevel(resolution=resolution)
    finally:
        igraph.set_random_number_generator(random)
    return np.asarray(found.membership, dtype=np.int64)


BACKENDS = {"python_louvain": python_louvain, "igraph": igraph_multilevel}


def chop(communities: list[np.ndarray], cap: int) -> list[np.ndarray]:
    """Pieces of at most ``cap`` nodes: a long community is cut in node-id order, what is left over goes to the end."""
    pieces, rest = [], communities
    while rest:
        pieces += [piece[:cap] for piece in rest]
        rest = [piece[cap:] for piece in rest if piece.size > cap]
    return pieces


def deal(sizes: np.ndarray, num_clients: int, fair: int, delta: int) -> np.ndarray:
    """The client of every piece, pieces in descending order of size.

    Clients stand in a ring. One that holds ``fair`` nodes leaves it (never the last). A piece goes to the first client
    from the pointer on that stays below ``fair + delta``; if there is none, to the smallest client. The pointer stays
    where the last piece went, so clients fill one after another.
    """
    held = np.zeros(num_clients, dtype=np.int64)
    ring, pointer = list(range(num_clients)), 0
    owner = np.empty(sizes.size, dtype=np.int64)
    for piece, size in enumerate(sizes):
        while len(ring) > 1 and held[ring[pointer]] >= fair:
            ring.pop(pointer)
            pointer %= len(ring)
        turned = np.roll(ring, -pointer)
        room = np.flatnonzero(held[turned] + size < fair + delta)
        chosen = int(turned[room[0]] if room.size else held.argmin())
        if room.size:
            pointer = (pointer + int(room[0])) % len(ring)
        held[chosen] += size
        owner[piece] = chosen
    return owner


@dataclass
class Louvain(Split):
    """Communities cut at ``fair - delta`` nodes (fair = nodes // clients) and dealt by size.

    Attributes:
        resolution: of the modularity; larger gives more communities.
        delta: tolerance in nodes. Where clients are small it shrinks to half of their fair size, since OpenFGL's rule
            never ends once ``fair <= delta``.
        backend: ``python_louvain`` or ``igraph``.
    """

    ranges: ClassVar[dict[str, Range]] = {"resolution": at_least(1e-9), "delta": at_least(0)}

    resolution: float
    delta: int
    backend: str

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        check_choice("split.backend", self.backend, BACKENDS)
        check_between("split.delta", self.delta, 0, float("inf"))
        check_between("split.resolution", self.resolution, 1e-9, float("inf"))
        found = BACKENDS[self.backend](graph, self.resolution, derive_seed(seed, "partition", "louvain"))
        # Communities in order of their first node, whatever the library calls them.
        _, first, named = np.unique(found, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        fair = graph.num_nodes // num_clients
        delta = min(self.delta, fair // 2)
        pieces = chop(members(rank[named], first.size), max(1, fair - delta))
        pieces.sort(key=lambda piece: -piece.size)
        owner = deal(np.array([piece.size for piece in pieces]), num_clients, fair, max(1, delta))
        return owner[as_parts(pieces, graph.num_nodes)]
