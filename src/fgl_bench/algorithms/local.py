"""Local training without federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, Traffic
from fgl_bench.engine.mixing import Mixing, alone


@dataclass
class Local(Algorithm):
    """Every client trains alone from the common initial model; M is the identity and nothing travels.

    Trips are counted nominally (C a round) so that its curve shares the x-axis of the others.
    """

    scenarios: ClassVar[tuple[str, ...]] = ("sync", "decentralized")

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return alone(arrived)

    def traffic(self) -> Traffic:
        return Traffic({}, {})
