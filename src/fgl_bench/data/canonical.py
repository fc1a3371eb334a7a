"""Conversion of raw graphs to the canonical form that splits, caches and hashes rely on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.graph import Features, Graph
from fgl_bench.errors import UserError

DENSE_ABOVE = 0.5
"""Features are kept as an array when more than this share of the entries is non-zero."""


def canonical_edges(row: np.ndarray, col: np.ndarray, num_nodes: int) -> np.ndarray:
    """``[2, E]`` int64: both directions of every edge, sorted by (row, column), no loops, no duplicates."""
    row, col = np.asarray(row, dtype=np.int64).ravel(), np.asarray(col, dtype=np.int64).ravel()
    no_loop = row != col
    low, high = np.minimum(row, col)[no_loop], np.maximum(row, col)[no_loop]
    # One integer per pair: sorting integers is many times faster than sorting rows. 3e9 nodes would still fit.
    keys = np.sort(low * num_nodes + high)  # np.unique would hash, which is slower here
    low, high = np.divmod(keys[np.diff(keys, prepend=-1) > 0], max(num_nodes, 1))
    both = np.sort(np.concatenate([low * num_nodes + high, high * num_nodes + low]))
    return np.stack(np.divmod(both, max(num_nodes, 1)))


def canonical_features(features: np.ndarray | sp.spmatrix | sp.sparray) -> Features:
    """float32 features: CSR with sorted indices and no stored zeros where most entries are zero, else an array."""
    if sp.issparse(features):
        matrix = sp.csr_matrix(features, dtype=np.float32, copy=True)  # type: ignore[arg-type]  # the stubs' issparse narrows wrongly
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        cells = matrix.shape[0] * matrix.shape[1]
        return matrix if matrix.nnz <= DENSE_ABOVE * cells else matrix.toarray()
    array = np.ascontiguousarray(features, dtype=np.float32)
    return sp.csr_matrix(array) if np.count_nonzero(array) <= DENSE_ABOVE * array.size else array


def adjacency(edges: np.ndarray, num_nodes: int, values: np.ndarray | None = None) -> sp.csr_matrix:
    """CSR adjacency of canonical edges (so neighbor lists are sorted), without a conversion; values default to 1."""
    counts = np.bincount(edges[0], minlength=num_nodes)
    pointers = np.concatenate([[0], np.cumsum(counts)])
    data = np.ones(edges.shape[1], dtype=np.int8) if values is None else values
    return sp.csr_matrix((data, edges[1], pointers), shape=(num_nodes, num_nodes))


def subgraph(graph: Graph, nodes: np.ndarray) -> Graph:
    """The subgraph induced by ascending ``nodes``, relabeled 0..n-1."""
    position = np.full(graph.num_nodes, -1, dtype=np.int64)
    position[nodes] = np.arange(nodes.size)
    local = position[graph.edges]
    return replace(
        graph,
        features=graph.features[nodes],
        edges=np.ascontiguousarray(local[:, (local >= 0).all(axis=0)]),
        labels=graph.labels[nodes],
        owner=None if graph.owner is None else graph.owner[nodes],
        masks={name: mask[nodes] for name, mask in graph.masks.items()},
        node_ids=None if graph.node_ids is None else graph.node_ids[nodes],
    )


def row_normalized(features: np.ndarray | sp.csr_matrix) -> np.ndarray | sp.csr_matrix:
    """``[N, F]`` with every row divided by its sum, in float64 and back; rows of zeros stay.

    PyG's ``NormalizeFeatures`` subtracts the smallest entry of the matrix first, and divides by at least 1. The two are equal where the
    smallest entry is 0 and no sum is below 1, as with words that are 0 or 1.

    Raises:
        UserError: a row that is not all zeros has a sum of 0 or less; dividing by it would turn its signs around.
    """
    sums = np.asarray(features.sum(axis=1, dtype=np.float64)).reshape(-1, 1)
    magnitude: Any = abs(features)
    filled = np.asarray(magnitude.sum(axis=1)).reshape(-1, 1) > 0
    wrong = np.flatnonzero(filled & (sums <= 0))
    if wrong.size:
        where = f"the features of {wrong.size} nodes (the first is {wrong[0]}) sum up to 0 or less"
        raise UserError(f"dataset.normalize_features=true: {where}; it is for features that are not negative; set it to false")
    scale = np.divide(1.0, sums, out=np.ones_like(sums), where=filled)
    if isinstance(features, np.ndarray):
        return (features * scale).astype(features.dtype)
    return sp.csr_matrix(features.multiply(scale), dtype=features.dtype)


def largest_component(graph: Graph) -> Graph:
    """The largest connected component (the one holding the lowest node id among equals)."""
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(adjacency(graph.edges, graph.num_nodes), directed=False)
    return subgraph(graph, np.flatnonzero(component == np.bincount(component).argmax()))
