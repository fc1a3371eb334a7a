"""The containers that the data stage hands on: a graph, a client's part of it, and a federation of clients."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

Features = sp.csr_matrix | np.ndarray


@dataclass(frozen=True)
class Graph:
    """One attributed graph, undirected and canonical.

    Attributes:
        name: the dataset's name, as in ``conf/dataset``.
        features: ``[N, F]`` float32, a scipy CSR matrix (sorted indices) where most entries are zero, else an array.
        edges: ``[2, E]`` int64, both directions of every edge, sorted by (row, column), no loops and no duplicates.
        labels: ``[N]`` int64; -1 marks a node without a label.
        num_classes: number of classes over the whole graph.
        metric: ``accuracy`` or ``auc``: what this dataset is scored with.
        owner: ``[N]`` int64 client of each node where the federation is natural (``split=natural``), else None.
    """

    name: str
    features: Features
    edges: np.ndarray
    labels: np.ndarray
    num_classes: int
    metric: str = "accuracy"
    owner: np.ndarray | None = None

    @property
    def num_nodes(self) -> int:
        return self.features.shape[0]

    @property
    def num_features(self) -> int:
        return self.features.shape[1]


@dataclass(frozen=True)
class ClientGraph:
    """What one client holds: the subgraph induced by its nodes, with its own masks.

    Attributes:
        nodes: ``[n]`` int64 ids in the global graph, ascending.
        features: ``[n, F]`` as in :class:`Graph`.
        edges: ``[2, e]`` int64 local ids, both directions, sorted, no loops; may be empty (``[2, 0]``).
        labels: ``[n]`` int64.
        train, val, test: ``[n]`` bool, disjoint, False where the label is -1.
    """

    nodes: np.ndarray
    features: Features
    edges: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray

    @property
    def num_nodes(self) -> int:
        return self.nodes.shape[0]


@dataclass(frozen=True)
class Federation:
    """All clients of one repetition (seed).

    Attributes:
        clients: the clean client graphs; evaluation reads these.
        observed: the clients as methods see them while training; the same tuple unless a sparsity scenario took
            labels, edges or features away.
        cross_edges: ``[2, K]`` int64 global ids, both directions, of the edges between different clients' nodes.
        partition_hash: hex digest of the node-to-client assignment.
    """

    dataset: str
    seed: int
    num_classes: int
    num_features: int
    clients: tuple[ClientGraph, ...]
    observed: tuple[ClientGraph, ...]
    cross_edges: np.ndarray
    partition_hash: str
    metric: str = "accuracy"
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def num_clients(self) -> int:
        return len(self.clients)
