"""GraphFed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.cross_client.fedcross import FedCross
from fgl_bench.algorithms.powers import Comparing
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.errors import Range, at_least
from fgl_bench.utils.seeding import generator


@dataclass
class GraphFed(FedCross, Comparing):
    """Personalized averaging by the distance between subgraphs (Deng et al., MASS 2023), as described by its abstract and FedAAS.

    ``theta_a = sum_b s_ab n_b theta_b / sum_b s_ab n_b`` (n_b training nodes) with ``s_ab = 1 / (1 + D_ab)``, 0 without a path,
    and ``s_aa = 1``. D_ab is the mean length of the shortest paths from nodes of a to nodes of b over the edges between a
    and b. Clients fetch embeddings of random neighbors before every batch. The server scores the mean of
    the models, weighted by n.

    Resolutions: the original's formulas are not public. FedAAS's authors use weights proportional to D_ab, without sizes and the own
    model (``weighting=authors``), which favors the most distant clients. Paths start at no more than ``sources`` nodes of a client.

    Attributes:
        weighting: ``similarity`` (above) or ``authors``.
        sources: largest number of a client's nodes at which paths to another client start.
    """

    ranges: ClassVar[dict[str, Range]] = {"sources": at_least(1)}

    weighting: Literal["similarity", "authors"]
    sources: int

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        count, distances = setting.num_clients, []
        for s, (seed, edges) in enumerate(zip(setting.seeds, setting.cross_edges, strict=True)):
            clients = setting.batch.clients[s * count : (s + 1) * count]
            distances.append(client_distances(clients, edges, self.sources, generator(seed, "distances")))
        distance = torch.from_numpy(np.stack(distances)).to(setting.batch.device)
        self.weights = WEIGHTINGS[self.weighting](distance, setting.weights[:, None])

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return Mixing(self.weights)

    def similarity(self, reports: dict[str, Tensor]) -> Tensor:
        return self.weights

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        """Add one upload of each client's incoming edges from other clients (two ids of 8 bytes each)."""
        lists = [16 * edges.shape[1] if rounds else 0 for edges in self.setting.cross_edges]
        return [(up + extra, down) for (up, down), extra in zip(super().bytes_after(rounds, trips), lists, strict=True)]


def client_distances(clients: Sequence[ClientGraph], edges: np.ndarray, sources: int, rng: np.random.Generator) -> np.ndarray:
    """Return D ``[C, C]``: mean hops from nodes of a client to nodes of another, over their edges; inf without edges between them.

    Args:
        edges: ``[2, K]`` global ids, both directions.
        sources: largest number of start nodes in the first client, drawn at random.
    """
    ids = np.concatenate([client.nodes for client in clients])
    owner = np.full(ids.max() + 1, -1)
    owner[ids] = np.repeat(np.arange(len(clients)), [client.num_nodes for client in clients])
    first, second = owner[edges[0]], owner[edges[1]]
    ahead = first < second
    pair, edges = (first * len(clients) + second)[ahead], edges[:, ahead]
    order = np.argsort(pair, kind="stable")
    pairs, begins = np.unique(pair[order], return_index=True)
    distance = np.full((len(clients), len(clients)), np.inf)
    for number, part in zip(pairs.tolist(), np.split(order, begins)[1:], strict=True):
        a, b = divmod(number, len(clients))
        left, row = np.unique(edges[0, part], return_inverse=True)
        right, column = np.unique(edges[1, part], return_inverse=True)
        size = left.size + right.size
        joined = sp.csr_matrix((np.ones(row.size), (row, left.size + column)), shape=(size, size))
        for start, stop, offset, (x, y) in ((0, left.size, left.size, (a, b)), (left.size, size, 0, (b, a))):
            begin = np.arange(start, stop)
            if begin.size > sources:
                begin = np.sort(rng.choice(begin, sources, replace=False))
            hops = shortest_path(joined, "D", directed=False, unweighted=True, indices=begin)[:, offset : offset + size - (stop - start)]
            distance[x, y] = hops[np.isfinite(hops)].mean()
    return distance


def _similarity(distance: Tensor, sizes: Tensor) -> Tensor:
    itself = torch.eye(distance.shape[-1], dtype=torch.bool, device=distance.device)
    return normalize(torch.where(itself, 1.0, 1 / (1 + distance)) * sizes)


def _authors(distance: Tensor, sizes: Tensor) -> Tensor:
    far = torch.where(distance.isfinite(), distance, 0.0)
    # A client without paths to others keeps its model.
    itself = torch.eye(distance.shape[-1], dtype=distance.dtype, device=distance.device)
    return torch.where(far.sum(-1, keepdim=True) > 0, normalize(far), itself)


WEIGHTINGS = {"similarity": _similarity, "authors": _authors}
