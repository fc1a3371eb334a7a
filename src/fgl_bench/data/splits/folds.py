"""Cross-validation: a repetition per fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fgl_bench.data.graph import Graph
from fgl_bench.data.masks import Masks
from fgl_bench.data.splits.iid import IID
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.utils.seeding import generator


@dataclass
class Folds(IID):
    """Equal shards, and the stratified folds of a cross-validation in place of random masks.

    The repetition with seed s tests on fold s modulo ``folds``, validates on the next one and trains on the others, so
    ``seeds=[0,1,...,9]`` are the ten folds. Folds are drawn once over all graphs (or nodes), and so are the clients.

    Attributes:
        folds: number of folds.
    """

    ways_of_masks: ClassVar[tuple[str, ...]] = ("client",)
    ranges: ClassVar[dict[str, Range]] = {"folds": at_least(3)}

    folds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ratios is not None or list(self.per_seed) != ["masks"] or not self.stratify:
            raise UserError("split=folds: takes split.ratios=null, split.per_seed=[masks] and split.stratify=true")

    def draw_masks(
        self,
        graph: Graph,
        nodes: Sequence[np.ndarray],
        ratios: tuple[float, float, float],
        seeds: tuple[int, int],
        cache_dir: str | Path | None,
    ) -> list[Masks]:
        shuffled = generator(0, "masks", "folds").permutation(graph.num_nodes)
        fold = np.empty(graph.num_nodes, dtype=np.int64)
        fold[shuffled[np.argsort(graph.strata[shuffled], kind="stable")]] = np.arange(graph.num_nodes) % self.folds
        fold[graph.strata < 0] = -1
        test, val = seeds[1] % self.folds, (seeds[1] + 1) % self.folds
        return [((fold[ids] >= 0) & (fold[ids] != val) & (fold[ids] != test), fold[ids] == val, fold[ids] == test) for ids in nodes]
