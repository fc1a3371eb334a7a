"""The inductive setting: while training nobody knows more of a graph than its training nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.graph import ClientGraph, Features


def training_view(client: ClientGraph, known: np.ndarray) -> ClientGraph:
    """``client`` with the nodes ``known [n]`` (bool) only, the edges among them and their features.

    The others keep their places, so that node numbers, masks and stacked shapes are those of the whole graph, but they are not
    ``present``: no edges, no features, and no part in any statistic over a client's nodes.
    """
    row, column = client.edges
    edges = np.ascontiguousarray(client.edges[:, known[row] & known[column]])
    features: Features
    if sp.issparse(client.features):
        features = (sp.diags(known.astype(client.features.dtype)) @ client.features).tocsr()
        features.eliminate_zeros()
    else:
        features = np.where(known[:, None], client.features, 0).astype(client.features.dtype)
    return replace(client, edges=edges, features=features, present=known)
