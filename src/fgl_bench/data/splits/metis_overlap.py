"""Overlapping clients (FED-PUB's and FedSSA's protocol): several samples of half the nodes of every METIS part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fgl_bench.data.checks import check_between, check_num_clients
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split, fill_empty, members
from fgl_bench.data.splits.metis import metis_parts
from fgl_bench.errors import SHARE, Range, UserError, at_least
from fgl_bench.utils.seeding import generator


@dataclass
class MetisOverlap(Split):
    """Clients ``s * samples_per_part .. (s + 1) * samples_per_part - 1`` sample part s; a node may have several clients, or none.

    Attributes:
        samples_per_part: clients of every part; FedSSA has 5 (2, 6 and 10 parts for 10, 30 and 50 clients).
        fraction: share of the part's nodes in each sample.
        masks: ``global`` or ``given``, because clients share nodes: drawn inside each client, a third of the test nodes would be
            training nodes of another client.
        seeded: METIS gets a seed; otherwise it is called without any option. The samples are drawn with a seed in any case.
    """

    overlaps: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"samples_per_part": at_least(1), "fraction": SHARE}

    samples_per_part: int
    fraction: float
    masks: str = field(kw_only=True)
    seeded: bool = field(default=True, kw_only=True)

    def assign(self, graph: Graph, num_clients: int | None, seed: int) -> list[np.ndarray]:
        num_clients = check_num_clients(num_clients, graph.num_nodes)
        check_between("split.samples_per_part", self.samples_per_part, 1, graph.num_nodes)
        check_between("split.fraction", self.fraction, 0, 1)
        if num_clients % self.samples_per_part:
            raise UserError(f"num_clients={num_clients}: must be a multiple of split.samples_per_part={self.samples_per_part}")
        num_parts = num_clients // self.samples_per_part
        parts = members(fill_empty(metis_parts(graph, num_parts, seed if self.seeded else None), num_parts), num_parts)
        rng = generator(seed, "partition", "metis_overlap")
        return [
            np.sort(rng.choice(nodes, size=max(1, int(self.fraction * nodes.size)), replace=False))
            for nodes in parts
            for _ in range(self.samples_per_part)
        ]
