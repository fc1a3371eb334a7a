"""FedDual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Peers, Setting
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.engine.mixing import identity, messages, metropolis, product
from fgl_bench.engine.random_numbers import mix, normal
from fgl_bench.errors import Range, above, at_least


@dataclass
class FedDual(Peers):
    """Random pairs of clients average their models (the pair-wise core of Chen et al., TIFS 18, 2023).

    ``Theta <- M Theta^`` with M of a random matching: symmetric, doubly stochastic, a projection. A round has ``gossip_steps``
    meetings; on ``scenario.topology=hypercube`` log2 C of them give the exact mean where C is a power of two.

    Resolutions (only the abstract is public, DFed-SST calls it "a pairwise gossip mechanism"): models, not gradients; equal weights;
    one meeting per round; no noise. With ``noise`` each client clips its change of the round to norm ``clip``, adds
    ``N(0, (noise clip)^2)`` to every scalar before sending it, and also continues from this model itself. Meeting s of round t
    uses the graph at time ``t gossip_steps + s``.

    Attributes:
        gossip_steps: meetings in a round.
        noise: sigma of the local differential privacy; 0 disables noise and clipping.
        clip: largest norm of a client's change under noise.
    """

    by_clients: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"gossip_steps": at_least(1), "noise": at_least(0), "clip": above(0)}

    gossip_steps: int
    noise: float
    clip: float

    def topology(self) -> tuple[str, int | None]:
        return "random_matching", None

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self._streams = setting.streams("privacy")

    def exchange(self, meeting: Meeting) -> Exchange:
        models = self.private(meeting) if self.noise else meeting.uploaded
        matrix: Any = None
        sent: Any = 0
        for step in range(self.gossip_steps):
            adjacency = meeting.graph(meeting.number * self.gossip_steps + step)
            weights = metropolis(adjacency)
            matrix = weights @ (identity(adjacency) if matrix is None else matrix)
            models = product(weights, models, self.setting.shard)
            sent = sent + messages(adjacency, self.traffic().bytes[0])
        return Exchange(models, matrix, sent)

    def private(self, meeting: Meeting) -> Tensor:
        """Return the models to send, with clipped changes and noise, ``[S, C, P]``."""
        change = meeting.uploaded - meeting.received
        change = change * (self.clip / change.norm(dim=-1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        scalars = torch.tensor(self.setting.layout.scalars(), device=change.device)
        draws = normal(mix(self._streams + meeting.number), 1, scalars.numel(), change.dtype)[:, 0]
        change[..., scalars] += self.noise * self.clip * draws.view(*change.shape[:2], -1)
        return meeting.received + change
