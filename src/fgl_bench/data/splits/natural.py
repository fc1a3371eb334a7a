"""The federation that the data came with: one client for every owner, or several that share an owner's graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split, fill_empty, members
from fgl_bench.data.splits.metis import metis_parts
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.utils.seeding import derive_seed


@dataclass
class Natural(Split):
    """Without ``num_clients`` there are as many clients as owners, times ``parts_per_owner``; another number is refused.

    Attributes:
        parts_per_owner: METIS parts of every owner's graph, a client each. Clients of one owner follow each other.
    """

    ranges: ClassVar[dict[str, Range]] = {"parts_per_owner": at_least(1)}

    parts_per_owner: int = field(default=1, kw_only=True)

    def clients(self, graph: Graph) -> int:
        """How many clients there are; a UserError where the dataset has no owners."""
        if graph.owner is None:
            known = "twitch, facebook100, citation_domains, webkb or molecules"
            own = "owner [N] in the file of a graph of your own, a file for each client (dataset.path='clients/*.npz')"
            raise UserError(f"split=natural: dataset={graph.name} has no owners; use dataset={known}, {own}, or another split")
        return int(np.unique(graph.owner).size) * self.parts_per_owner

    def assign(self, graph: Graph, num_clients: int | None, seed: int) -> list[np.ndarray]:
        clients = int(self.agreed(graph, num_clients) or 0)
        owner = np.unique(np.asarray(graph.owner), return_inverse=True)[1]
        held = members(owner, clients // self.parts_per_owner)
        if self.parts_per_owner == 1:
            return held
        return [nodes[part] for number, nodes in enumerate(held) for part in self._cut(graph, nodes, derive_seed(seed, "owner", number))]

    def _cut(self, graph: Graph, nodes: np.ndarray, seed: int) -> list[np.ndarray]:
        """METIS parts of the graph among ``nodes``, as places in ``nodes``."""
        parts = self.parts_per_owner
        if nodes.size < parts:
            raise UserError(f"split.parts_per_owner={parts}: an owner of dataset={graph.name} has only {nodes.size} node(s)")
        local = np.full(graph.num_nodes, -1)
        local[nodes] = np.arange(nodes.size)
        edges = local[graph.edges]
        own = Graph(graph.name, graph.features[nodes], edges[:, (edges >= 0).all(0)], graph.labels[nodes], graph.num_classes)
        return members(fill_empty(metis_parts(own, parts, seed), parts), parts)


@dataclass
class Domains(Natural):
    """One client per owner, whose features and classes are unlike the others': input and output layers are each client's own.

    The rest of the network is what methods share, as in the federations of several data sets of GCFL (Xie et al., NeurIPS 2021).
    """

    personal_ends: ClassVar[bool] = True
