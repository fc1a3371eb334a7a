"""Topology skew: clients with graphs of successive mean degrees (OpenFGL's simulation of this name)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fgl_bench.data.graph import Graph
from fgl_bench.data.graph_set import GraphUnits
from fgl_bench.data.splits.base import Split
from fgl_bench.errors import UserError


@dataclass
class _Segments(Split):
    """Graphs (or nodes) in the order of a statistic, cut into segments of the same size; the last one takes the remainder."""

    @abstractmethod
    def statistic(self, graph: Graph) -> np.ndarray:
        """Return the value ``[N]`` of each graph (or node)."""

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        values = self.statistic(graph)
        if np.ptp(values) <= 1e-6 * np.abs(values).max():
            name = type(self).__name__
            raise UserError(
                f"split: {name} sorts by a value that is the same for all of dataset={graph.name}{self.advice}; use another split"
            )
        part = np.empty(values.size, dtype=np.int64)
        part[np.argsort(values, kind="stable")] = np.minimum(np.arange(values.size) // (values.size // num_clients), num_clients - 1)
        return part

    advice: ClassVar[str] = ""


@dataclass
class TopologySkew(_Segments):
    """Sorted by the mean degree of a graph's nodes, or by a node's degree."""

    def statistic(self, graph: Graph) -> np.ndarray:
        return graph.degree if isinstance(graph, GraphUnits) else np.bincount(graph.edges[0], minlength=graph.num_nodes)
