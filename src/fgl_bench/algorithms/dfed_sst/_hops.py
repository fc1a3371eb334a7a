"""Hop distances inside client graphs, computed once on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from fgl_bench.data.graph import ClientGraph

UNREACHABLE = -1


class Distances(NamedTuple):
    """Distances from the m sources of each of k clients.

    Attributes:
        sources: ``[k, m]`` int64 nodes, ascending; 0 in padding.
        there: ``[k, m]`` bool, False in padding.
        distance: ``[k, m, n]`` int16, -1 without a path and in padding.
    """

    sources: Tensor
    there: Tensor
    distance: Tensor


@lru_cache(maxsize=128)
def _search(nodes: int, edges: bytes, sources: bytes) -> np.ndarray:
    row, column = np.frombuffer(edges, dtype=np.int64).reshape(2, -1)
    matrix = sp.csr_matrix((np.ones(row.size), (row, column)), shape=(nodes, nodes))
    distances = shortest_path(matrix, "D", directed=True, unweighted=True, indices=np.frombuffer(sources, dtype=np.int64))
    return np.where(np.isfinite(distances), distances, UNREACHABLE).astype(np.int16)


def hops(client: ClientGraph, sources: np.ndarray) -> np.ndarray:
    """Return the number of hops ``[m, n]`` int16 from each of the ``sources``; -1 without a path. Results are cached."""
    edges, sources = (np.ascontiguousarray(part, dtype=np.int64) for part in (client.edges, sources))
    return _search(client.num_nodes, edges.tobytes(), sources.tobytes())


def stack(clients: Sequence[ClientGraph], sources: Sequence[np.ndarray], nodes: int, device: torch.device) -> Distances:
    """Return the distances of every client from its own sources, padded to ``nodes``."""
    most = max(each.size for each in sources)
    distance = np.full((len(clients), most, nodes), UNREACHABLE, dtype=np.int16)
    index, there = np.zeros((len(clients), most), dtype=np.int64), np.zeros((len(clients), most), dtype=bool)
    for i, (client, each) in enumerate(zip(clients, sources, strict=True)):
        distance[i, : each.size, : client.num_nodes] = hops(client, each)
        index[i, : each.size], there[i, : each.size] = each, True
    return Distances(*(torch.from_numpy(part).to(device) for part in (index, there, distance)))
