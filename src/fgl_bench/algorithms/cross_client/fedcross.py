"""FedCross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fgl_bench.algorithms.cross_client._halo import Level
from fgl_bench.algorithms.cross_client._sampling import largest
from fgl_bench.algorithms.cross_client.base import CrossClient
from fgl_bench.errors import Range, at_least


@dataclass
class FedCross(CrossClient):
    """Random local and remote neighbors, fetched before every batch: the naive baseline of FedAAS (Li et al., SIGMOD 2024, section 7.1).

    Resolution: "5 batch training epochs" is read as ``fanout`` = 5 neighbors inside the client and ``fanout_remote`` = 5 outside.
    (Not the method of the same name that crosses several models, ICDE 2024.)

    Attributes:
        fanout_remote: largest number of a node's neighbors in other clients; null takes all.
    """

    ranges: ClassVar[dict[str, Range]] = {"fanout_remote": at_least(1)}

    fanout_remote: int | None

    @property
    def scored(self) -> bool:
        return self.sampling == "attention" and not (self.fanout is None and self.fanout_remote is None)

    def choose(self, number: int, level: Level, allowed: Tensor, scores: Tensor | None, noise: Tensor) -> Tensor:
        near = super().choose(number, level, allowed & ~level.remote, scores, noise)
        far = allowed & level.remote
        if self.fanout_remote is None:
            return near | far
        keys = noise if scores is None else scores + noise
        return near | largest(keys, level.edges.target, self.fanout_remote, far)
