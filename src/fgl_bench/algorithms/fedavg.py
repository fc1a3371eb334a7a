"""FedAvg."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.engine.mixing import Mixing, normalise


@dataclass
class FedAvg(Algorithm):
    """Parameter averaging weighted by client size (McMahan et al., AISTATS 2017, algorithm 1).

    ``M_ij = n_j / sum of n over the participants``: the same row for every client. Where nobody has training nodes the
    participants count alike.
    """

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return Mixing(normalise(self.setting.weights, arrived)[:, None])
