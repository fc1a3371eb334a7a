"""Communication graphs of clients without a server: ``adjacency[i, j]`` is true if i receives from j."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Links(NamedTuple):
    """The arguments of a random or time-varying graph.

    Attributes:
        clients: C.
        time: number of the exchange, which the deterministic time-varying graphs depend on.
        rng: which the random ones are drawn from.
        degree: k of the graphs that have one.
        chance: of an edge of an Erdős-Rényi graph.
    """

    clients: int
    time: int
    rng: np.random.Generator
    degree: int
    chance: float


def _circulant(clients: int, distances: list[int]) -> np.ndarray:
    """Client i hears ``i - distance`` for every distance that is no multiple of C; equal ones count once."""
    adjacency = np.zeros((clients, clients), dtype=bool)
    for distance in distances:
        adjacency[np.arange(clients), (np.arange(clients) - distance) % clients] = True
    np.fill_diagonal(adjacency, False)
    return adjacency


def _periods(clients: int, base: int) -> int:
    """``floor(log_base(C - 1)) + 1`` without rounding error; 1 below two clients."""
    periods, reach = 1, base
    while reach <= clients - 1:
        periods, reach = periods + 1, reach * base
    return periods


def isolated(links: Links) -> np.ndarray:
    return np.zeros((links.clients, links.clients), dtype=bool)


def ring(links: Links) -> np.ndarray:
    return _circulant(links.clients, [1, -1])


def directed_ring(links: Links) -> np.ndarray:
    return _circulant(links.clients, [1])


def complete(links: Links) -> np.ndarray:
    return ~np.eye(links.clients, dtype=bool)


def random_k_in(links: Links) -> np.ndarray:
    """Every client draws k others to hear (pull)."""
    order = links.rng.random((links.clients, links.clients))
    np.fill_diagonal(order, np.inf)
    adjacency = np.zeros((links.clients, links.clients), dtype=bool)
    np.put_along_axis(adjacency, np.argsort(order, 1)[:, : min(links.degree, links.clients - 1)], True, 1)
    return adjacency


def random_k_out(links: Links) -> np.ndarray:
    """Every client draws k others to send to (push)."""
    return random_k_in(links).T.copy()


def random_matching(links: Links) -> np.ndarray:
    """Random pairs; with an odd number of clients one has no partner."""
    order = links.rng.permutation(links.clients)
    half = links.clients // 2
    adjacency = isolated(links)
    adjacency[order[:half], order[half : 2 * half]] = True
    return adjacency | adjacency.T


def hypercube(links: Links) -> np.ndarray:
    """Client i meets ``i XOR 2^(time mod p)``, p = ceil(log2 C), where there is such a client."""
    bits = max(1, (links.clients - 1).bit_length())
    adjacency, partner = isolated(links), np.arange(links.clients) ^ (1 << links.time % bits)
    there = partner < links.clients
    adjacency[np.flatnonzero(there), partner[there]] = True
    return adjacency


def random_regular(links: Links) -> np.ndarray:
    """Random regular graph; raises ValueError if no such graph exists."""
    if links.degree >= links.clients or links.degree * links.clients % 2:
        raise ValueError(f"no regular graph of {links.clients} clients; allowed: below num_clients, and even where num_clients is odd")
    import networkx as nx

    return nx.to_numpy_array(nx.random_regular_graph(links.degree, links.clients, seed=links.rng)) > 0


def erdos_renyi(links: Links) -> np.ndarray:
    upper = np.triu(links.rng.random((links.clients, links.clients)) < links.chance, 1)
    return upper | upper.T


def static_exponential(links: Links) -> np.ndarray:
    return _circulant(links.clients, [2**m for m in range(_periods(links.clients, 2))])


def k_peer_exponential(links: Links) -> np.ndarray:
    """Client i hears ``i - j (k+1)^(time mod p)``, j = 1..k; distances that coincide modulo C count once."""
    hop = (links.degree + 1) ** (links.time % _periods(links.clients, links.degree + 1))
    return _circulant(links.clients, [j * hop for j in range(1, links.degree + 1)])


def one_peer_exponential(links: Links) -> np.ndarray:
    return k_peer_exponential(links._replace(degree=1))


TOPOLOGIES: dict[str, Callable[[Links], np.ndarray]] = {
    graph.__name__: graph
    for graph in (
        isolated, ring, directed_ring, complete, random_k_in, random_k_out, random_matching, hypercube, random_regular, erdos_renyi,
        static_exponential, one_peer_exponential, k_peer_exponential,
    )
}  # fmt: skip
WITH_DEGREE = ("random_k_in", "random_k_out", "random_regular", "k_peer_exponential")
RANDOM = ("random_k_in", "random_k_out", "random_matching", "random_regular", "erdos_renyi")
