"""The average of FedSage+."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.mixing import Mixing, normalize


@dataclass
class Weighted(FedAvg):
    """Average of the participants, uniform (``uniform``) or by size (``samples``)."""

    weighting: Literal["uniform", "samples"]

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return Mixing(normalize(WEIGHTINGS[self.weighting](self, arrived), arrived)[:, None])


WEIGHTINGS = {"uniform": lambda method, arrived: arrived.double(), "samples": lambda method, arrived: method.setting.weights}
