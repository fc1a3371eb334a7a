"""The memory that a :class:`~fgl_bench.algorithms.cross_client._halo.Halo` takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.graph import ClientGraph


def halo_bytes(clients: Sequence[ClientGraph], cross_edges: np.ndarray, widths: Sequence[int], itemsize: int) -> int:
    """Estimated bytes of one federation's halo, of stores of rows of these ``widths`` and of two plans for all nodes.

    Args:
        cross_edges: ``[2, K]`` global ids in both directions.
    """
    count, largest = len(clients), max(client.num_nodes for client in clients)
    owner = np.full(max(int(client.nodes.max(initial=0)) for client in clients) + 1, -1)
    for i, client in enumerate(clients):
        owner[client.nodes] = i
    entries = np.unique(owner[cross_edges[0]] * owner.size + cross_edges[1]).size
    edges = sum(client.num_nodes + client.edges.shape[1] for client in clients) + cross_edges.shape[1]
    blocks = [client.features for client in clients]
    features = sum((b.data.nbytes + b.indices.nbytes) if sp.issparse(b) else b.size * itemsize for b in blocks)
    # Ends, kind, entry and number of an edge and what is chosen; a plan has its ends, both orders, number, entry and two flags.
    per_edge = 5 * 8 + len(widths) + 2 * (5 * 8 + 2)
    # A row, its age, holder, owner and pair; while it is used, beside the others and multiplied, with gradients.
    per_entry = sum(width * itemsize + 8 for width in widths) + 24 + 2 * max(widths, default=0) * itemsize
    return features + edges * per_edge + entries * per_entry + 32 * count * largest
