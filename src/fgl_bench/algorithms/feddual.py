"""FedDual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, Exchange, Meeting, Setting
from fgl_bench.engine.dropout import mix
from fgl_bench.engine.gossip import identity, messages, metropolis, product
from fgl_bench.engine.noise import normal
from fgl_bench.errors import UserError


@dataclass
class FedDual(Algorithm):
    """Clients meet in random pairs and both take the average of their models (the pair-wise core of Chen et al., TIFS 18, 2023).

    ``Theta <- M Theta^`` with M of a random matching: symmetric, doubly stochastic, a projection. ``gossip_steps`` meetings follow each
    other in a round; on ``scenario.topology=hypercube`` log2 C of them give the exact mean where C is a power of two.

    Resolutions (only the abstract can be read, DFed-SST names it "a pairwise gossip mechanism"): models, not gradients; both count
    alike; one meeting a round; no noise. With ``noise`` each client clips its change of the round to norm ``clip`` and adds
    ``N(0, (noise clip)^2)`` to every scalar before anything leaves it, and goes on from that model too. Meeting s of
    round t uses the graph of time ``t gossip_steps + s``.

    Attributes:
        gossip_steps: meetings in a round.
        noise: sigma of the local differential privacy; 0 turns it and the clipping off.
        clip: largest norm of a client's change under noise.
    """

    scenarios: ClassVar[tuple[str, ...]] = ("decentralized",)

    gossip_steps: int
    noise: float
    clip: float

    def topology(self) -> tuple[str, int | None]:
        return "random_matching", None

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        if self.gossip_steps < 1:
            raise UserError(f"algorithm.gossip_steps={self.gossip_steps} is out of range; allowed: 1 and more")
        if self.noise < 0:
            raise UserError(f"algorithm.noise={self.noise} is out of range; allowed: 0 and more")
        if self.clip <= 0:
            raise UserError(f"algorithm.clip={self.clip} is out of range; allowed: a number above 0")
        self._streams = setting.streams("privacy")

    def exchange(self, meeting: Meeting) -> Exchange:
        models = self.private(meeting) if self.noise else meeting.trained
        matrix, sent = None, 0
        for step in range(self.gossip_steps):
            heard = meeting.graph(meeting.number * self.gossip_steps + step)
            weights = metropolis(heard)
            matrix = weights @ (identity(heard) if matrix is None else matrix)
            models = product(weights, models)
            sent = sent + messages(heard, self.traffic().bytes[0])
        return Exchange(models, matrix, sent)

    def private(self, meeting: Meeting) -> Tensor:
        """The models that may be shown to others: changes clipped, noise added, ``[S, C, P]``."""
        change = meeting.trained - meeting.received
        change = change * (self.clip / change.norm(dim=-1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        scalars = torch.tensor(self.setting.layout.scalars(), device=change.device)
        draws = normal(mix(self._streams + meeting.number), 1, scalars.numel(), change.dtype)[:, 0]
        change[..., scalars] += self.noise * self.clip * draws.view(*change.shape[:2], -1)
        return meeting.received + change
