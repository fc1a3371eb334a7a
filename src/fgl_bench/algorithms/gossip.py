"""Segmented gossip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from fgl_bench.algorithms.base import Peers, Setting
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.engine.mixing import messages, product, sized, uniform
from fgl_bench.errors import Range, UserError, at_least, require


@dataclass
class Gossip(Peers):
    """Clients average each segment of their models with a few random peers (Hu, Jiang & Wang, arXiv 1908.07782).

    The D scalars are cut into S contiguous segments whose sizes differ by at most one. For every segment, each client pulls from
    R newly drawn peers and takes ``M_ij = m_j / (m_i + sum of m over the peers)``. S = 1 is plain gossip, the baseline of
    DFed-SST. The traffic, about R models per client and round, does not depend on S.

    Resolutions: R = 2; the sender's size m_j (4 bytes) is sent with every segment; segment s of round t uses the random graph at
    time ``t S + s``.

    Attributes:
        segments: S, at most the number of scalars.
        peers: R, at most the C - 1 other clients.
        weighting: by client size (``samples``), or ``uniform``.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"segments": at_least(1), "peers": at_least(1)}

    segments: int
    peers: int
    weighting: Literal["samples", "uniform"]

    def topology(self) -> tuple[str, int | None]:
        return "random_k_in", self.peers

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        count, others = setting.layout.count, setting.num_clients - 1
        fits = not others or self.peers <= others  # a single client has no peers
        require(fits, "algorithm.peers", self.peers, f"an integer from 1 to {others}, the number of other clients")
        if not 1 <= self.segments <= count:
            raise UserError(f"algorithm.segments={self.segments} is out of range; allowed: 1 to the model's {count} scalars")
        starts = setting.layout.scalars()
        bounds = [number * count // self.segments for number in range(self.segments + 1)]
        self.sizes = [end - begin for begin, end in zip(bounds, bounds[1:], strict=False)]
        # Padding is zero and belongs to the preceding segment.
        cuts = [starts[begin] for begin in bounds[:-1]] + [setting.layout.size]
        self.slices = [slice(begin, end) for begin, end in zip(cuts, cuts[1:], strict=False)]

    def exchange(self, meeting: Meeting) -> Exchange:
        models, count = torch.empty_like(meeting.trained), self.setting.layout.count
        mean: Any = 0.0
        sent: Any = 0
        for number, (part, size) in enumerate(zip(self.slices, self.sizes, strict=True)):
            adjacency = meeting.graph(meeting.number * self.segments + number)
            matrix = sized(adjacency, self.setting.weights) if self.weighting == "samples" else uniform(adjacency)
            models[..., part] = product(matrix, meeting.uploaded[..., part], self.setting.shard)
            mean = mean + matrix * (size / count)
            sent = sent + messages(adjacency, 4 * (size + 1))
        return Exchange(models, mean, sent)
