"""FedAvg."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import ServerRounds
from fgl_bench.engine.mixing import Mixing, normalize


@dataclass
class FedAvg(ServerRounds):
    """Parameter averaging weighted by client size (McMahan et al., AISTATS 2017, algorithm 1).

    ``M_ij = n_j / sum of n over the participants``: the same row for every client. Where nobody has training nodes the
    participants count alike.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return self._equal_mixing if self.setting.full_participation else Mixing(normalize(self.setting.weights, arrived)[:, None])

    @cached_property
    def _equal_mixing(self) -> Mixing:
        return Mixing(normalize(self.setting.weights)[:, None])
