"""The clients that one worker trains, and the tensors that go from worker to worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine import Float
from fgl_bench.engine.transfer import put
from fgl_bench.utils.world import World

K = TypeVar("K")
PIECE = 1 << 24
"""Elements of a product that are on their way at a time."""


@dataclass(frozen=True)
class Shard:
    """This worker's clients of every seed, out of all C; without other workers they are all.

    Tensors of models, moments and graphs have rows for these clients only, ``[S, c, ...]``: replica ``s * c + i`` is the i-th of them.
    Server inputs (reports and weights) have rows for all clients, ``[S, C, ...]``, on every worker.
    """

    clients: int = 0
    world: World = World()

    @property
    def alone(self) -> bool:
        return self.world.size == 1

    @cached_property
    def parts(self) -> list[slice]:
        """The clients of every worker, by rank: numbers that differ by one at most, one next to the other."""
        bounds = [rank * self.clients // self.world.size for rank in range(self.world.size + 1)]
        return [slice(*pair) for pair in zip(bounds, bounds[1:], strict=False)]

    @property
    def own(self) -> slice:
        return slice(None) if self.alone else self.parts[self.world.rank]

    def of(self, whole: Any) -> Any:
        """This worker's part of ``whole [S, C, ...]``, ``[S, c, ...]``."""
        return whole[:, self.own]

    def whole(self, mine: Float[Tensor, "S c ..."]) -> Float[Tensor, "S C ..."]:
        """``mine`` with the rows of the other workers, on all of them."""
        if self.alone:
            return mine
        everybody = np.ones((len(mine), self.clients), dtype=bool)
        return self.rows({"": mine.flatten(0, 1)}, everybody)[""].unflatten(0, everybody.shape)

    def named(self, mine: Mapping[K, Float[Tensor, "k ..."]], chosen: np.ndarray, device: torch.device) -> dict[K, Float[Tensor, "k ..."]]:
        """``mine``, this worker's rows of the ``chosen [S, C]`` (host bool) clients; if it has no rows, empty tensors like the others'."""
        if self.alone or all(chosen[:, part].any() for part in self.parts):
            return dict(mine)
        kinds = self.world.gather([(name, value.dtype, value.shape[1:]) for name, value in mine.items()])
        known = next(filter(None, kinds), [])
        return dict(mine) or {name: torch.empty(0, *shape, dtype=dtype, device=device) for name, dtype, shape in known}

    def rows(self, mine: Mapping[K, Float[Tensor, "k ..."]], chosen: np.ndarray) -> dict[K, Float[Tensor, "K ..."]]:
        """Rows of all ``chosen [S, C]`` (host bool) clients, by name and in order, gathered from every worker's rows."""
        if self.alone or not mine:
            return dict(mine)
        counts = [int(chosen[:, part].sum()) for part in self.parts]
        parts = self.world.gather_rows(torch.cat([_bytes(value) for value in mine.values()], 1), counts)
        numbers = np.arange(chosen.size).reshape(chosen.shape)
        order = np.concatenate([numbers[:, part][chosen[:, part]] for part in self.parts]).argsort()
        stacked = torch.cat(parts).index_select(0, put(order, parts[0].device))
        columns = stacked.split([value.dtype.itemsize * value.shape[1:].numel() for value in mine.values()], 1)
        return {
            name: part.clone(memory_format=torch.contiguous_format).view(value.dtype).view(len(stacked), *value.shape[1:])
            for (name, value), part in zip(mine.items(), columns, strict=True)
        }

    def mean(self, mine: Float[Tensor, "S c ..."]) -> Float[Tensor, "S 1 ..."]:
        """The mean over all clients."""
        if self.alone:
            return mine.mean(1, keepdim=True)
        return self.world.sum_(mine.sum(1, keepdim=True)).div_(self.clients)

    def product(
        self,
        weights: Float[Tensor, "S r C"],
        mine: Float[Tensor, "S c P"],
        out: Float[Tensor, "S r P"],
        multiply: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> Float[Tensor, "S r P"]:
        """``weights @ models``, of which this worker has the rows of its clients, ``[S, c, P]``; one row per seed goes to all.

        Every worker multiplies its columns of the weights with its models. The products are summed: one row per seed by all workers
        together; more are sent to whose they are, who sums them, by rank and some columns at a time. (That is a reduce-scatter,
        which gloo lacks in some versions of torch.)

        Args:
            out: where the result goes; its rows are those of this worker's clients, where there are C.
            multiply: ``multiply(a, b, c)`` writes ``a @ b`` to c and returns it.
        """
        if self.alone:
            return multiply(weights, mine, out)
        seeds, rows, _ = weights.shape
        weights = weights[:, :, self.own]
        if rows == 1:
            return out.copy_(self.world.sum_(multiply(weights, mine, mine.new_empty(seeds, 1, mine.shape[2], dtype=weights.dtype))))
        step = max(1, PIECE // (seeds * rows))
        for columns in range(0, mine.shape[2], step):
            piece = mine[..., columns : columns + step]
            pieces = [
                multiply(weights[:, part], piece, piece.new_empty(seeds, part.stop - part.start, piece.shape[2], dtype=weights.dtype))
                for part in self.parts
            ]
            first, *others = self.world.exchange(pieces, (*mine.shape[:2], piece.shape[2]))
            for other in others:
                first += other
            out[..., columns : columns + step] = first
        return out


def _bytes(rows: Tensor) -> Tensor:
    """``[k, ...]`` as ``[k, bytes]``."""
    return rows.detach().reshape(len(rows), rows.shape[1:].numel()).contiguous().view(torch.uint8)


ALONE = Shard()
