"""In which mini-batch of an epoch a row of the input weight gets its first gradient."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fgl_bench.algorithms.cross_client._halo import Halo
from fgl_bench.algorithms.cross_client._touched import NEVER


class FirstUse:
    """The first mini-batch that may have a gradient for each row of the input weight, from the mini-batches of the nodes.

    A node's features have one in its own mini-batch and in those of the nodes that it is within ``depth`` hops of inside its client.
    """

    def __init__(self, halo: Halo, depth: int):
        self.halo, self.depth = halo, depth

    @cached_property
    def _inner(self) -> tuple[np.ndarray, np.ndarray]:
        inner = self.halo.kind == 1
        return self.halo.source[inner], self.halo.target[inner]

    @cached_property
    def _nodes(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For every part of the weight, its rows (replica * F + feature) in order; where the slots that have each begin; these slots."""
        halo = self.halo
        parts = [halo.slots if part == halo.part else np.flatnonzero(halo.joined) for part in range(halo.parts)]
        return [halo.features.by_feature(slots) for slots in parts]

    def __call__(self, number: np.ndarray) -> np.ndarray:
        """``[k * F * parts]`` uint16 by replica, feature and part; :data:`NEVER` where there is none.

        Args:
            number: mini-batch of each of ``halo.slots``, -1 for none.
        """
        halo = self.halo
        node = np.full(halo.size * halo.nodes, NEVER)
        node[halo.slots] = np.where(number < 0, NEVER, np.minimum(number, NEVER - 1))
        source, target = self._inner
        for _ in range(self.depth):
            near = node[target]
            np.minimum.at(node, source, near)
        first = np.full((halo.size * halo.features.width, halo.parts), NEVER)
        for part, (rows, starts, slots) in enumerate(self._nodes):
            if rows.size:
                first[rows, part] = np.minimum.reduceat(node[slots], starts)
        return first.ravel()
