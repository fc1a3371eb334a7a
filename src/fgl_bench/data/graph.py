"""The containers that the data stage hands on: a graph, a client's part of it, and a federation of clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.storage import folder_of

Features = sp.csr_matrix | np.ndarray


def strata(labels: np.ndarray) -> np.ndarray:
    """``[n]`` the class that each node counts for in splits and masks: its label, or the lowest of several; -1 without any."""
    if labels.ndim == 1:
        return labels
    return np.where(labels.any(axis=1), labels.argmax(axis=1), -1)


@dataclass(frozen=True)
class Graph:
    """One attributed graph, undirected and canonical.

    Attributes:
        name: the dataset's name, as in ``conf/dataset``.
        features: ``[N, F]`` float32, a scipy CSR matrix (sorted indices) where most entries are zero, else an array.
        edges: ``[2, E]`` int64, both directions of every edge, sorted by (row, column), no loops and no duplicates.
        labels: ``[N]`` int64, where -1 marks a node without a label, or ``[N, Y]`` float32 of 0 and 1: several labels a node.
        num_classes: number of classes over the whole graph.
        metric: what this dataset is scored with, one of :data:`fgl_bench.data.checks.METRICS`.
        owner: ``[N]`` int64 client of each node where the federation is natural (``split=natural``), else None.
        masks: of ``train_mask``, ``val_mask`` and ``test_mask`` those that the data came with, bool ``[N]`` or ``[N, K]``
            (``split.masks=given``).
    """

    name: str
    features: Features
    edges: np.ndarray
    labels: np.ndarray
    num_classes: int
    metric: str = "accuracy"
    owner: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        return self.features.shape[0]

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def folder(self) -> Path | None:
        """The folder that features and edges are mapped from; None for a graph in memory."""
        return folder_of(self.features, self.edges)

    @property
    def strata(self) -> np.ndarray:
        """:func:`strata` of the labels."""
        return strata(self.labels)


@dataclass(frozen=True)
class ClientGraph:
    """What one client holds: the subgraph induced by its nodes, with its own masks.

    Attributes:
        nodes: ``[n]`` int64 ids in the global graph, ascending.
        features: ``[n, F]`` as in :class:`Graph`.
        edges: ``[2, e]`` int64 local ids, both directions, sorted, no loops; may be empty (``[2, 0]``).
        labels: ``[n]`` int64, or ``[n, Y]`` as in :class:`Graph`.
        train, val, test: ``[n]`` bool, disjoint, False where the label is -1.
        present: ``[n]`` bool, the nodes that are there (see ``data.inductive``): the others keep their place, without edges and
            features; None means all.
    """

    nodes: np.ndarray
    features: Features
    edges: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    present: np.ndarray | None = None

    @property
    def num_nodes(self) -> int:
        return self.nodes.shape[0]

    @property
    def folder(self) -> Path | None:
        """The folder that features and edges are mapped from, for this partition; None where either is in memory."""
        return folder_of(self.features, self.edges)

    @property
    def strata(self) -> np.ndarray:
        """:func:`strata` of the labels."""
        return strata(self.labels)


@dataclass(frozen=True)
class Federation:
    """All clients of one repetition (seed).

    Attributes:
        clients: the clean client graphs; evaluation reads these.
        observed: the clients as methods see them while training; the same tuple unless a sparsity scenario took
            labels, edges or features away, or the setting is inductive.
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

    @property
    def scored(self) -> tuple[ClientGraph, ...]:
        """The clients by which scores are kept."""
        return self.clients
