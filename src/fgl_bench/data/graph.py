"""Containers of the data stage: a graph, a client's part of it, and a federation of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

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
        metric: the dataset's score, one of :data:`fgl_bench.data.checks.METRICS`.
        owner: ``[N]`` int64 client of each node where the federation is natural (``split=natural``), else None.
        masks: of ``train_mask``, ``val_mask`` and ``test_mask`` those that the data came with, bool ``[N]`` or ``[N, K]``
            (``split.masks=given``).
        node_ids: ``[N]`` names of the nodes in the data, else None.
        class_names: names of the classes in the data, in the order of their numbers; empty if the data have numbers only.
    """

    name: str
    features: Features
    edges: np.ndarray
    labels: np.ndarray
    num_classes: int
    metric: str = "accuracy"
    owner: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    node_ids: np.ndarray | None = None
    class_names: tuple[str, ...] = ()

    @property
    def num_nodes(self) -> int:
        return self.features.shape[0]

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def num_examples(self) -> int:
        """Return the number of labels."""
        return self.num_nodes

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
    """The data of one client: the subgraph induced by its nodes, with its own masks.

    Its m examples are what has labels and masks: the nodes (m = n), unless a subclass says otherwise.

    Attributes:
        nodes: ``[n]`` int64 ids in the global graph, ascending.
        features: ``[n, F]`` as in :class:`Graph`.
        edges: ``[2, e]`` int64 local ids, both directions, sorted, no loops; may be empty (``[2, 0]``).
        labels: ``[n]`` int64, or ``[n, Y]`` as in :class:`Graph`.
        train, val, test: ``[n]`` bool, disjoint, False where the label is -1.
        present: ``[n]`` bool, the nodes that are there (see :func:`training_view`): the others keep their place, without edges and
            features; None means all.

    Class attributes:
        of_nodes: True if the examples are the nodes.
    """

    of_nodes: ClassVar[bool] = True

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
    def example_ids(self) -> np.ndarray:
        """Ids ``[m]`` of the examples in the federation, ascending."""
        return self.nodes

    def pooled(self, whole: ClientGraph, clients: Sequence[ClientGraph], ids: np.ndarray) -> ClientGraph:
        """Return ``whole``, the data of all of ``clients``, as a client of this kind; ``ids [m]`` are of its examples."""
        return whole

    @property
    def reference(self) -> np.ndarray | None:
        """The nodes ``[n]`` (bool) over which batch normalization takes mean and variance; None means all."""
        return None

    @property
    def held_out(self) -> ClientGraph:
        """The part of the data that scores are computed from, with all validation and test examples; nodes need their neighbors."""
        return self

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
        observed: the clients as methods see them while training; the same tuple unless a scenario of sparsity or
            noise changed labels, edges or features, or the setting is inductive.
        cross_edges: ``[2, K]`` int64 global ids, both directions, of the edges between different clients' nodes.
        partition_hash: hex digest of the node-to-client assignment.
        personal_ends: each client has its own input and output layers (``split=domains``).
        malicious: numbers of the clients that attack, which have no validation and test nodes.
        unseen: the clients that were left out of training; their ``unseen_numbers`` are those among all clients.
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
    personal_ends: bool = False
    malicious: tuple[int, ...] = ()
    unseen: Federation | None = None
    unseen_numbers: tuple[int, ...] = ()

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @property
    def scored(self) -> tuple[ClientGraph, ...]:
        """The clients by which scores are kept."""
        return self.clients


@dataclass(frozen=True)
class LabeledNodes(ClientGraph):
    """The nodes of a client that have a label; labels and masks are theirs. There are no features and no edges.

    Derived features (:mod:`fgl_bench.engine.derived`) are computed for the whole client and stored for these nodes.

    Attributes:
        whole: the client.
        rows: ``[m]`` where these nodes are among its own.
    """

    whole: ClientGraph = field(kw_only=True)
    rows: np.ndarray = field(kw_only=True)

    @classmethod
    def of(cls, whole: ClientGraph) -> LabeledNodes:
        rows = np.flatnonzero(whole.labels >= 0)
        own = {name: getattr(whole, name)[rows] for name in ("nodes", "labels", "train", "val", "test")}
        features, edges = np.empty((0, whole.features.shape[1]), np.float32), np.empty((2, 0), np.int64)
        return cls(features=features, edges=edges, whole=whole, rows=rows, **own)

    @property
    def folder(self) -> Path | None:
        return self.whole.folder


def reducible(clients: Sequence[ClientGraph]) -> bool:
    """Return True if nodes can be omitted: a client in files with one label per node and some unlabeled nodes."""
    filed = clients[0].folder is not None and clients[0].labels.ndim == 1
    return filed and any((client.labels < 0).any() for client in clients)


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
