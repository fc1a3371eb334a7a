"""The clients and masks of FED-PUB's code (Baek et al., 2023), from which the tables of FedIIH, FedGSP and FedSSA descend."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from fgl_bench.data.checks import check_num_clients
from fgl_bench.data.graph import Graph
from fgl_bench.data.masks import SLACK, Masks
from fgl_bench.data.splits.base import Split, fill_empty, members
from fgl_bench.data.splits.metis import metis_parts
from fgl_bench.errors import Range, UserError, at_least


@dataclass
class FedPub(Split):
    """METIS parts, and masks drawn once over the whole graph regardless of classes.

    The code draws for several numbers of clients in one go, from generators that are seeded once. The masks of 10 clients are
    therefore the second draw, after those of 5.

    Attributes:
        ratios: ``round(a n)`` of the n nodes train and ``round(c n)`` test; the rest validates where a + b + c = 1, else
            ``round(b n)``.
        per_seed: with ``masks`` repetition s draws from ``seed + s``. METIS has no seed here.
        seed: 1234 is the code's.
        counts: the numbers of clients that the code draws for, in this order; another number is drawn first.
        backend: ``libmetis`` is METIS 5.1.0 as the code calls it; ``pymetis`` comes with other random numbers and gives other parts of
            about the same cut.
    """

    ranges: ClassVar[dict[str, Range]] = {"seed": at_least(0)}
    ways_of_masks: ClassVar[tuple[str, ...]] = ("global",)

    seed: int
    counts: list[int]
    backend: str

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, wanted in {"masks": "global", "stratify": False, "test": "clients"}.items():
            if getattr(self, key) != wanted:
                raise UserError(f"split.{key}={str(getattr(self, key)).lower()}: FED-PUB has {str(wanted).lower()} only")

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        return metis_parts(graph, num_clients, None, self.backend)

    def draw_masks(
        self,
        graph: Graph,
        nodes: Sequence[np.ndarray],
        ratios: tuple[float, float, float],
        seeds: tuple[int, int],
        cache_dir: str | Path | None,
    ) -> list[Masks]:
        generator = torch.Generator().manual_seed((self.seed + seeds[1]) % 2**63)
        for _ in self.drawn_for(len(nodes)):
            order = torch.randperm(graph.num_nodes, generator=generator).numpy()
        train, val, test = (round(share * order.size) for share in ratios)
        if sum(ratios) > 1 - SLACK:
            val = order.size - train - test
        kind = np.full(order.size, -1)
        for number, ids in enumerate(np.split(order, np.cumsum([train, test, val]))[:3]):
            kind[ids] = number
        kind[graph.strata < 0] = -1
        return [(kind[ids] == 0, kind[ids] == 2, kind[ids] == 1) for ids in nodes]

    def drawn_for(self, num_clients: int) -> list[int]:
        """The numbers of clients that are drawn for up to this one."""
        before = self.counts.index(num_clients) if num_clients in self.counts else 0
        return [*self.counts[:before], num_clients]


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
