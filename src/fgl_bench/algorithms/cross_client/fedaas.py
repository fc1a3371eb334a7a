"""FedAAS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.cross_client.base import CrossClient
from fgl_bench.algorithms.powers import ServerNodes
from fgl_bench.engine.network import node_losses
from fgl_bench.errors import Range, UserError, at_least


@dataclass
class FedAAS(CrossClient, ServerNodes):
    """Historical embeddings of sampled neighbors, fetched at an adaptive interval (Li et al., Proc. ACM Manag. Data 2(3), 2024).

    ``tau_i = ceil(sqrt(F_i / F_0) tau_0)`` batches between synchronizations in round i, clamped to [``min_interval``, tau_0], where F_i
    is the loss of the global model before the round and tau_0 = ``interval``. Neighbors are drawn with
    probabilities proportional to the exponentials of the top convolution's attention logits, on the last fetched remote rows.

    The ablations are yamls with other values of the keys: ``fedaas1`` (fixed interval 1), ``fedaas2`` (all neighbors), ``fedall``
    (both), ``fedlocal`` (no edges between clients). This is the method of the paper; the released code has neither history nor attention
    sampling.

    Resolutions: F is the loss on the server's validation nodes (the paper's, on test nodes, leaks; ``loss_source=test``); the
    neighbors are scored by the layer's own attention, also used for aggregation (eq. 9 mixes two clients' weights); one
    joint sample of local and remote neighbors; rows of layer inputs are sent, not their weighted sums. Reading F for the interval
    is the only synchronization of a round.

    Attributes:
        adaptive: adapt the interval to the loss.
        min_interval: smallest interval, in batches.
        loss_source: the server's nodes for F, ``val`` or ``test``.
        rule: ``paper``, or ``authors``: rounded down, decreasing, and changed only after rounds without a lower loss.
    """

    ranges: ClassVar[dict[str, Range]] = {"min_interval": at_least(1)}
    uses_validation: ClassVar[bool] = True  # the server's loss on its validation nodes gives the interval

    adaptive: bool
    min_interval: int
    loss_source: Literal["val", "test"]
    rule: Literal["paper", "authors"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adaptive and not 1 <= self.min_interval <= self.interval:
            raise UserError(f"algorithm.min_interval={self.min_interval}: must be from 1 to algorithm.interval={self.interval}")

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.losses: list[list[float]] = []  # by round and seed
        self.taus: list[list[int]] = []

    def observe(self, logits: Tensor) -> None:
        if not self.adaptive:
            return
        server = self.server_nodes
        mask = getattr(server, self.loss_source)
        each = node_losses(logits.flatten(0, 1), server.labels.flatten(0, 1)).view(mask.shape)
        loss = (each * mask).sum(1) / mask.sum(1).clamp(min=1)
        self.losses.append(torch.where(loss.isfinite(), loss, torch.inf).tolist())

    def intervals(self) -> list[int]:
        if not self.adaptive:
            return super().intervals()
        before = self.taus[-1] if self.taus else [self.interval] * len(self.setting.seeds)
        self.taus.append([RULES[self.rule](self, s, tau) for s, tau in enumerate(before)])
        return self.taus[-1]

    def _ratio(self, s: int) -> float:
        first, now = self.losses[0][s], self.losses[-1][s]
        return math.sqrt(now / first) * self.interval if 0 < first < math.inf and now < math.inf else self.interval

    def traffic(self) -> Traffic:
        base = super().traffic()
        return Traffic(base.upload, {**base.download, "interval": 1}) if self.adaptive else base


def _paper(method: FedAAS, s: int, before: int) -> int:
    # The slack keeps an exact ratio from being rounded up.
    return min(max(math.ceil(method._ratio(s) - 1e-9), method.min_interval), method.interval)


def _authors(method: FedAAS, s: int, before: int) -> int:
    losses = method.losses
    if len(losses) < 2 or losses[-1][s] < losses[-2][s]:
        return before
    return max(min(int(method._ratio(s)), before - 1), method.min_interval)


RULES = {"paper": _paper, "authors": _authors}
FedAAS1 = FedAAS2 = FedAll = FedLocal = FedAAS  # the ablations under the names in stored results, see config/schema.py
