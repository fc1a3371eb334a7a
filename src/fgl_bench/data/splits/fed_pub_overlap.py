"""The overlapping clients of FED-PUB's code (Baek et al., 2023), with its masks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fgl_bench.data.checks import check_num_clients
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import fill_empty, members
from fgl_bench.data.splits.fed_pub import FedPub
from fgl_bench.errors import Range, UserError, at_least


@dataclass
class FedPubOverlap(FedPub):
    """As :class:`FedPub`, every METIS part sampled several times: a node may have several clients, or none.

    Attributes:
        per_seed: with ``partition`` repetition s samples from ``seed + s``.
        samples_per_part: clients of every part, each with half of its nodes.
    """

    overlaps: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"seed": at_least(0), "samples_per_part": at_least(1)}

    samples_per_part: int

    def assign(self, graph: Graph, num_clients: int | None, seed: int) -> list[np.ndarray]:
        num_clients = check_num_clients(num_clients, graph.num_nodes)
        if num_clients % self.samples_per_part:
            raise UserError(f"num_clients={num_clients}: must be a multiple of split.samples_per_part={self.samples_per_part}")
        draws = random.Random(self.seed + seed)
        for count in self.drawn_for(num_clients):
            num_parts = min(max(1, count // self.samples_per_part), graph.num_nodes)
            parts = members(fill_empty(self.parts(graph, num_parts, seed), num_parts), num_parts)
            clients = [draws.sample(part.tolist(), max(1, part.size // 2)) for part in parts for _ in range(self.samples_per_part)]
        return [np.sort(np.array(client, dtype=np.int64)) for client in clients]
