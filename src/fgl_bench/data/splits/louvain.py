"""Louvain communities (Blondel et al., 2008), long ones cut, dealt to clients by size: two published rules without their faults."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.canonical import adjacency
from fgl_bench.data.checks import check_between, check_choice
from fgl_bench.data.graph import Graph
from fgl_bench.data.masks import SLACK, Masks
from fgl_bench.data.partition_cache import cached_assignment
from fgl_bench.data.splits.base import Split, as_parts, members
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.utils.seeding import derive_seed

SECONDS_PER_EDGE = 3e-4
"""Approximate seconds per edge of python-louvain."""

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
    membership = community.best_partition(network, resolution=resolution, random_state=seed % 2**32)
    return np.fromiter((membership[node] for node in range(graph.num_nodes)), dtype=np.int64, count=graph.num_nodes)


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
        clustering = network.community_multilevel(resolution=resolution)
    finally:
        igraph.set_random_number_generator(random)
    return np.asarray(clustering.membership, dtype=np.int64)


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
        masks: besides those of all splits, ``fedgta``: as its code draws them, with Python's generator, over a client's nodes in the
            order in which they were dealt, regardless of classes; they follow from ``seed`` where that is given. With the partitions above
            these are the masks that its code comes with (Cora's has four nodes twice, each of which keeps the first of its masks).
    """

    ways_of_masks: ClassVar[tuple[str, ...]] = ("client", "global", "given", "fedgta")
    ranges: ClassVar[dict[str, Range]] = {"resolution": at_least(1e-9), "delta": at_least(0), "seed": at_least(0)}

    resolution: float
    delta: int
    backend: str
    deal: str = field(default="openfgl", kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, wanted in {"deal": "fedgta", "stratify": False, "test": "clients"}.items():
            if self.masks == "fedgta" and getattr(self, key) != wanted:
                raise UserError(f"split.masks=fedgta: goes with split.{key}={str(wanted).lower()} only")

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        pieces, owner, _ = self._dealt(self.communities(graph, seed), graph.num_nodes, num_clients)
        return owner[as_parts(pieces, graph.num_nodes)]

    def communities(self, graph: Graph, seed: int) -> list[np.ndarray]:
        """Ascending node ids of every community, in order of their first nodes; the library's own numbering has no effect."""
        check_choice("split.backend", self.backend, BACKENDS)
        check_between("split.resolution", self.resolution, 1e-9, float("inf"))
        state = derive_seed(seed, "partition", "louvain") if self.seed is None else self.seed
        membership = BACKENDS[self.backend](graph, self.resolution, state)
        _, first, named = np.unique(membership, return_index=True, return_inverse=True)
        return members(np.argsort(np.argsort(first))[named], first.size)

    def _dealt(self, communities: list[np.ndarray], num_nodes: int, num_clients: int) -> tuple[list[np.ndarray], np.ndarray, int]:
        """The pieces in the order in which they are dealt, the client of each, and how many nodes a client stays below."""
        check_between("split.delta", self.delta, 0, float("inf"))
        check_choice("split.deal", self.deal, ("openfgl", "fedgta"))
        fair = num_nodes // num_clients
        delta = min(self.delta, fair // 2)
        rules = {"openfgl": (fair - delta, fair, fair + max(1, delta), True), "fedgta": (fair, fair + 1, fair + 2, False)}
        cut, full, limit, level = rules[self.deal]
        pieces = chop(communities, max(1, cut))
        pieces.sort(key=lambda piece: -piece.size)
        return pieces, deal(np.array([piece.size for piece in pieces]), num_clients, full, limit, level), limit

    def draw_masks(
        self,
        graph: Graph,
        nodes: Sequence[np.ndarray],
        ratios: tuple[float, float, float],
        seeds: tuple[int, int],
        cache_dir: str | Path | None,
    ) -> list[Masks]:
        if self.masks != "fedgta":
            return super().draw_masks(graph, nodes, ratios, seeds, cache_dir)
        whole = _Communities(**{each.name: getattr(self, each.name) for each in fields(self)})
        communities, _ = cached_assignment(whole, graph, None, seeds[0], cache_dir)
        pieces, owner, limit = self._dealt(communities, graph.num_nodes, len(nodes))
        held: list[list[int]] = [[] for _ in nodes]
        for piece, client in zip(pieces, owner.tolist(), strict=True):
            twice = len(held[client]) + piece.size >= limit  # nobody had room: FedGTA's code shuffles these nodes twice
            held[client] += piece.tolist() * (2 if twice else 1)
        draws = random.Random(derive_seed(seeds[1], "masks", "louvain") if self.seed is None else self.seed)
        # A client that was dealt nothing, and the one that gave it some of its nodes, have them in ascending order.
        held = [order if set(order) == set(ids.tolist()) else ids.tolist() for order, ids in zip(held, nodes, strict=True)]
        return [masks_in_order(order, ids, graph.strata[ids] >= 0, ratios, draws) for order, ids in zip(held, nodes, strict=True)]


class _Communities(Louvain):
    """The communities themselves as the parts, for the cache."""

    def assign(self, graph: Graph, num_clients: int | None, seed: int) -> list[np.ndarray]:
        return self.communities(graph, seed)


def masks_in_order(
    order: Sequence[int], ids: np.ndarray, labeled: np.ndarray, ratios: tuple[float, float, float], draws: random.Random
) -> Masks:
    """Masks of a client's nodes ``ids [n]`` by a shuffle of ``order``, its nodes in the order in which they came, some of them twice.

    The first ``int(a n)`` train, the next ``int(b n)`` validate, and the rest tests where a + b + c = 1, else ``int(c n)``.
    """
    shuffled = list(order)
    draws.shuffle(shuffled)
    sizes = [int(share * len(order)) for share in ratios]
    if sum(ratios) > 1 - SLACK:
        sizes[2] = len(order) - sizes[0] - sizes[1]
    kind = np.full(ids.size, -1)
    ends = np.cumsum(sizes)
    for node, part in zip(np.searchsorted(ids, shuffled), np.searchsorted(ends, np.arange(len(order)), side="right"), strict=True):
        kind[node] = part if kind[node] < 0 else kind[node]
    train, val, test = ((kind == part) & labeled for part in range(3))
    return train, val, test
