"""Sets of labeled graphs; clients whose examples are graphs, or pairs of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, cast

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.graph import ClientGraph, Graph
from fgl_bench.errors import UserError


@dataclass(frozen=True)
class GraphSet(Graph):
    """M labeled graphs as one graph: no edge joins two of them.

    Attributes:
        labels: ``[M]`` int64, the class of each graph.
        owner: ``[M]`` int64 client of each graph where the federation is natural, else None.
        graph: ``[N]`` int64, ascending: the graph of each node, 0 to M - 1.
    """

    graph: np.ndarray = field(kw_only=True)

    @property
    def num_examples(self) -> int:
        return int(self.graph[-1]) + 1 if self.graph.size else 0

    @property
    def units(self) -> GraphUnits:
        """The graphs as the nodes of a graph without edges, which a split divides among clients."""
        sizes = np.bincount(self.graph, minlength=self.num_examples)
        mean = sp.csr_matrix((1 / sizes[self.graph], (self.graph, np.arange(self.num_nodes))))
        degree = mean @ np.bincount(self.edges[0], minlength=self.num_nodes)
        features = mean @ self.features
        features = np.asarray(features.toarray() if sp.issparse(features) else features, dtype=np.float32)
        none = np.empty((2, 0), dtype=np.int64)
        return GraphUnits(self.name, features, none, self.labels, self.num_classes, self.metric, self.owner, degree=degree)

    def clients(self, parts: Sequence[np.ndarray]) -> list[ClientOfGraphs]:
        """Clients with these graphs.

        Args:
            parts: ascending graph ids of each client; no graph has two clients.
        """
        clients = []
        starts = np.searchsorted(self.graph, np.arange(self.num_examples + 1))
        for ids in parts:
            sizes = starts[ids + 1] - starts[ids]
            nodes = np.repeat(starts[ids] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
            position = np.full(self.num_nodes, -1)
            position[nodes] = np.arange(nodes.size)
            local = position[self.edges]
            edges = np.ascontiguousarray(local[:, local[0] >= 0])
            empty = np.zeros(ids.size, dtype=bool)
            graph = np.repeat(np.arange(ids.size), sizes)
            data = (nodes, self.features[nodes], edges, self.labels[ids], empty, empty, empty)
            clients.append(ClientOfGraphs(*data, graph=graph, ids=ids))
        return clients


@dataclass(frozen=True)
class GraphUnits(Graph):
    """The graphs of a :class:`GraphSet`, each as one node with the mean of its features.

    Attributes:
        degree: ``[M]`` mean degree of the nodes of each graph.
    """

    degree: np.ndarray = field(kw_only=True)


@dataclass(frozen=True)
class ClientOfGraphs(ClientGraph):
    """A client with m labeled graphs; labels and masks are ``[m]``.

    Attributes:
        graph: ``[n]`` int64, ascending: the graph of each node, 0 to m - 1.
        ids: ``[m]`` int64, ascending: the graphs' numbers in the data set.
    """

    of_nodes: ClassVar[bool] = False

    graph: np.ndarray = field(kw_only=True)
    ids: np.ndarray = field(kw_only=True)

    @property
    def example_ids(self) -> np.ndarray:
        return self.ids

    def pooled(self, whole: ClientGraph, clients: Sequence[ClientGraph], ids: np.ndarray) -> ClientOfGraphs:
        own = cast(Sequence[ClientOfGraphs], clients)
        order = np.argsort(np.concatenate([client.nodes for client in own]))
        graph = np.concatenate([client.ids[client.graph] for client in own])[order]
        return ClientOfGraphs(**vars(whole), graph=np.searchsorted(ids, graph), ids=ids)

    @property
    def reference(self) -> np.ndarray:
        """The nodes of training graphs; all nodes of a client without training graphs."""
        return self.train[self.graph] | (not self.train.any())

    @property
    def training_part(self) -> ClientOfGraphs:
        """The client with its training graphs only; with all if it has none."""
        return ClientOfGraphs(**self._part(self.train))

    @property
    def held_out(self) -> HeldOutGraphs:
        return HeldOutGraphs(**self._part(self.val | self.test))

    def _part(self, graphs: np.ndarray) -> dict[str, Any]:
        """Return the fields of the client with the graphs ``graphs [m]`` (bool); with all graphs if there are none."""
        graphs = graphs | (not graphs.any())
        here = graphs[self.graph]
        edges = self.edges[:, here[self.edges[0]]]
        masks = {name: getattr(self, name)[graphs] for name in ("labels", "train", "val", "test", "ids")}
        number, position = np.cumsum(graphs) - 1, np.cumsum(here) - 1
        own = {"nodes": self.nodes[here], "features": self.features[here], "edges": np.ascontiguousarray(position[edges])}
        return {**masks, **own, "graph": number[self.graph[here]]}


@dataclass(frozen=True)
class HeldOutGraphs(ClientOfGraphs):
    """The graphs that scores are of; training graphs, over which batch normalization takes mean and variance, are not among them."""

    @property
    def reference(self) -> NoReturn:
        raise UserError("the model reads Batch.reference in evaluation; it has to say so by normalizes = True")


@dataclass(frozen=True)
class ClientOfPairs(ClientGraph):
    """A client with m pairs of nodes; the label of a pair is 1 for an edge, else 0. Labels and masks are ``[m]``.

    Attributes:
        edges: of message passing, without validation and test edges.
        pairs: ``[2, m]`` int64 local ids.
        ids: ``[m]`` int64, ascending: the pairs' numbers in the federation.
    """

    of_nodes: ClassVar[bool] = False

    pairs: np.ndarray = field(kw_only=True)
    ids: np.ndarray = field(kw_only=True)

    @property
    def example_ids(self) -> np.ndarray:
        return self.ids

    def pooled(self, whole: ClientGraph, clients: Sequence[ClientGraph], ids: np.ndarray) -> ClientOfPairs:
        own = cast(Sequence[ClientOfPairs], clients)
        pairs = np.concatenate([np.searchsorted(whole.nodes, client.nodes)[client.pairs] for client in own], 1)
        order = np.argsort(np.concatenate([client.ids for client in own]))
        return ClientOfPairs(**vars(whole), pairs=pairs[:, order], ids=ids)
