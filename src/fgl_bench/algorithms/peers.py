"""Base of methods with rounds without a server: an exchange among neighbors."""

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
        """Return the default communication graph (a name in ``engine.topologies``) and its degree."""
        return "complete", None

    @abstractmethod
    def exchange(self, meeting: Meeting) -> Exchange:
        """Exchange messages after a round's training, and return the next models."""


class MixingPeers(Peers):
    """Peers that average whole models by one matrix, regardless of the communication graph."""

    @abstractmethod
    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        """Return the mixing of uploads into the next models; arguments as for :meth:`ServerRounds.mix`, with uploads of all clients."""

    def exchange(self, meeting: Meeting) -> Exchange:
        everybody = torch.ones_like(self.setting.weights, dtype=torch.bool)
        mixing = checked(self.mix(meeting.reports, everybody), everybody).without(self.frozen, self.setting.layout)
        matrix = mixing.matrix()
        models = mixing.apply(meeting.uploaded, meeting.received, self.setting.layout, meeting.trained, self.setting.shard)
        return Exchange(models, matrix, messages((matrix > 0) & ~itself(matrix), self.traffic().bytes[0]))
