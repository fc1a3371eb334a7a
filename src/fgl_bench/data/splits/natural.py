"""The federation that the data came with: one client for every owner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split, members
from fgl_bench.errors import UserError


def natural_clients(graph: Graph) -> int:
    """Number of owners; a UserError where the dataset has none."""
    if graph.owner is None:
        raise UserError(f"split=natural: dataset={graph.name} has no owners; use dataset=twitch, or another split")
    return int(np.unique(graph.owner).size)


@dataclass
class Natural(Split):
    """Without ``num_clients`` there are as many clients as owners; another number is refused."""

    def assign(self, graph: Graph, num_clients: int | None, seed: int) -> list[np.ndarray]:
        owners = natural_clients(graph)
        if num_clients not in (None, owners):
            raise UserError(f"num_clients={num_clients}: split=natural on dataset={graph.name} needs num_clients={owners}")
        return members(np.unique(np.asarray(graph.owner), return_inverse=True)[1], owners)
