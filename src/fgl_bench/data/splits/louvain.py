"""Louvain communities (Blondel et al., 2008), long ones cut, dealt to clients by size: two published rules without their faults."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.canonical import adjacency
from fgl_bench.data.checks import check_between, check_choice
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split, as_parts, members
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.utils.seeding import derive_seed

SECONDS_PER_EDGE = 3e-4
"""Of python-louvain, about."""

SLOW = 10.0
"""Seconds of a partition from which those of five seeds take about a minute."""

log = logging.getLogger(__name__)


def python_louvain(graph: Graph, resolution: float, seed: int) -> np.ndarray:
    """``[N]`` community of every node, by python-louvain (pure Python; what the papers used)."""
    import community
    import networkx

    seconds = SECONDS_PER_EDGE * graph.edges.shape[1] / 2
    if seconds > SLOW:
        faster = "split.backend=igraph (igraph's multilevel method) takes about a second and gives other parts"
        log.warning("python-louvain takes about %.0f s for a partition of %s; %s", seconds, graph.name, faster)
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


def deal(sizes: np.ndarray, num_clients: int, full: int, limit: int, level: bool = True) -> np.ndarray:
    """The client of every piece, pieces in descending order of size.

    Clients stand in a ring. One that holds ``full`` nodes leaves it (never the last). A piece goes to the first client
    from the pointer on that stays below ``limit``; if there is none, to the smallest client (``level``)
    or to the one at the pointer. The pointer stays where the last piece went, so clients fill one after another.
    """
    held = np.zeros(num_clients, dtype=np.int64)
    ring, pointer = list(range(num_clients)), 0
    owner = np.empty(sizes.size, dtype=np.int64)
    for piece, size in enumerate(sizes):
        while len(ring) > 1 and held[ring[pointer]] >= full:
            ring.pop(pointer)
            pointer %= len(ring)
        turned = np.roll(ring, -pointer)
        room = np.flatnonzero(held[turned] + size < limit)
        chosen = int(turned[room[0]] if room.size else held.argmin() if level else turned[0])
        if room.size:
            pointer = (pointer + int(room[0])) % len(ring)
        held[chosen] += size
        owner[piece] = chosen
    return owner


@dataclass
class Louvain(Split):
    """Communities cut and dealt by size, so that every client holds about ``fair = nodes // clients`` nodes.

    Attributes:
        deal: OpenFGL's rule (communities are cut at ``fair - delta`` nodes; a client is full at ``fair`` and stays below
            ``fair + delta``) or FedGTA's (cut at ``fair``; full at ``fair + 1``, below ``fair + 2``; ``delta`` has no effect).
            Where no client has room, FedGTA's code gives a piece to one client twice; here it does so once.
        seed: what Louvain draws from; null: what follows from the repetition. 2023 with python-louvain, ``deal=fedgta`` and 10
            clients gives the partitions of Cora and CiteSeer that FedGTA's code comes with.
        resolution: of the modularity; larger gives more communities.
        delta: tolerance in nodes. Where clients are small it shrinks to half of their fair size, since OpenFGL's rule
            never ends once ``fair <= delta``.
        backend: ``python_louvain`` or ``igraph``.
    """

    ranges: ClassVar[dict[str, Range]] = {"resolution": at_least(1e-9), "delta": at_least(0), "seed": at_least(0)}

    resolution: float
    delta: int
    backend: str
    deal: str = field(default="openfgl", kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        check_choice("split.backend", self.backend, BACKENDS)
        check_between("split.delta", self.delta, 0, float("inf"))
        check_between("split.resolution", self.resolution, 1e-9, float("inf"))
        check_choice("split.deal", self.deal, ("openfgl", "fedgta"))
        state = derive_seed(seed, "partition", "louvain") if self.seed is None else self.seed
        found = BACKENDS[self.backend](graph, self.resolution, state)
        # Communities in order of their first node, whatever the library calls them.
        _, first, named = np.unique(found, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        fair = graph.num_nodes // num_clients
        delta = min(self.delta, fair // 2)
        rules = {"openfgl": (fair - delta, fair, fair + max(1, delta), True), "fedgta": (fair, fair + 1, fair + 2, False)}
        cut, full, limit, level = rules[self.deal]
        pieces = chop(members(rank[named], first.size), max(1, cut))
        pieces.sort(key=lambda piece: -piece.size)
        owner = deal(np.array([piece.size for piece in pieces]), num_clients, full, limit, level)
        return owner[as_parts(pieces, graph.num_nodes)]
