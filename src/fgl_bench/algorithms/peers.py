"""What rounds without a server add to a method: an exchange among neighbors."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.engine.gossip import itself, messages
from fgl_bench.engine.mixing import Mixing, checked


class Peers(Algorithm):
    """A method under ``scenario=decentralized``: every round all clients train, then exchange along a directed graph."""

    def topology(self) -> tuple[str, int | None]:
        """The communication graph (a name in ``engine.topologies``) and its degree, where the scenario leaves them to the method."""
        return "complete", None

    @abstractmethod
    def exchange(self, meeting: Meeting) -> Exchange:
        """What clients send each other after a round's training and make of it."""


class MixingPeers(Peers):
    """Peers that average whole models by one matrix, whoever can hear whom."""

    @abstractmethod
    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        """How the uploads become the models that clients train next; arguments as :meth:`ServerRounds.mix`, everybody has arrived."""

    def exchange(self, meeting: Meeting) -> Exchange:
        everybody = torch.ones_like(self.setting.weights, dtype=torch.bool)
        mixing = checked(self.mix(meeting.reports, everybody), everybody).without(self.frozen, self.setting.layout)
        matrix = mixing.matrix()
        models = mixing.apply(meeting.uploaded, meeting.received, self.setting.layout, meeting.trained, self.setting.shard)
        return Exchange(models, matrix, messages((matrix > 0) & ~itself(matrix), self.traffic().bytes[0]))
