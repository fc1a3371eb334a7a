"""Local training without federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import MixingPeers, ServerRounds, Traffic
from fgl_bench.engine.mixing import Mixing, alone


class Alone(ServerRounds):
    """Base of methods whose models never leave the clients: M is the identity and nothing is communicated."""

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return alone(arrived)

    def traffic(self) -> Traffic:
        return Traffic({}, {})


@dataclass
class Local(Alone, MixingPeers):
    """Every client trains alone from the common initial model.

    Trips are counted nominally (C a round) so that its curve shares the x-axis of the others.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
