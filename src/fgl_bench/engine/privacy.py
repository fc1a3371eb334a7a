"""Differential privacy of clients: clipped updates, a noisy mean, and what both guarantee."""

from __future__ import annotations

import importlib.util
import math
import sys
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.engine import Float, Int
from fgl_bench.engine.aggregators import Aggregator
from fgl_bench.engine.mixing import stacked_product
from fgl_bench.engine.random_numbers import normal
from fgl_bench.engine.shard import Shard
from fgl_bench.errors import Range, UserError, above, at_least


@dataclass
class NoPrivacy:
    """No mechanism: the server's models are those of its aggregator."""

    def combine(self) -> None:
        """Nothing takes the place of the aggregator."""

    def check_installed(self) -> None:
        """Nothing is needed."""


@dataclass
class DP(Aggregator):
    """The Gaussian mechanism on the weighted mean of updates (McMahan et al., ICLR 2018).

    ``received + sum_i w_i clip(trained_i - received) + N(0, (noise * clip * max_i w_i)^2)`` per seed and round, where ``clip`` scales an
    update down to L2 norm ``clip``. An update that is not finite counts as zero. The weights w_i are public. Clients start from the
    server's model: another start would be part of the mean, and is not clipped.

    Attributes:
        clip: the largest norm of a client's update.
        noise: the noise multiplier z, standard deviation per sensitivity.
        delta: of the guarantee (epsilon, delta).
    """

    key: ClassVar[str] = "privacy=dp"
    default: ClassVar[str] = "privacy=none"
    hides: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"clip": above(0), "noise": at_least(0), "delta": Range(0, 1, above=True, below=True)}

    clip: float
    noise: float
    delta: float

    def combine(
        self,
        uploads: Float[Tensor, "S c P"],
        received: Float[Tensor, "S c P"],
        weights: Float[Tensor, "S C"],
        shard: Shard,
        key: Int[Tensor, " S"],
    ) -> Float[Tensor, "S P"]:
        for rows, weight in zip(shard.whole(received), weights, strict=True):
            starts = rows[weight > 0]
            if not torch.equal(starts, starts[:1].expand_as(starts)):
                raise UserError(
                    "privacy=dp: covers updates of the server's model, and this method's clients start from others; use privacy=none"
                )
        norm = (uploads - received).norm(dim=-1, keepdim=True)
        clipped = torch.where(norm > self.clip, received + (uploads - received) * (self.clip / norm), uploads)
        clipped = torch.where(norm.isfinite(), clipped, received)
        out = clipped.new_empty(len(clipped), 1, clipped.shape[2])
        mean = shard.product(weights[:, None].to(clipped.dtype), clipped, out, stacked_product)
        if not self.noise:
            return mean[:, 0]
        std = (self.noise * self.clip * weights.amax(1, keepdim=True)).to(mean.dtype)
        return mean[:, 0] + std * normal(key, 1, mean.shape[2], mean.dtype)[:, 0]

    def check_installed(self) -> None:
        """Raise UserError if the accountant is not installed."""
        if importlib.util.find_spec("dp_accounting") is None:
            raise UserError("privacy=dp needs dp-accounting, which is not installed: pip install 'fgl-bench[privacy]'")

    def epsilon(self, participations: int) -> float | None:
        """Return epsilon for a client that took part in ``participations`` rounds; None if nothing is guaranteed.

        Neighboring federations differ in one client whose updates are zero in one of them. Which clients take part is public: sampling
        does not amplify privacy.
        """
        with redirect_stderr(sys.__stderr__):  # absl's logger closes any other stream that it finds on import
            import dp_accounting
            from dp_accounting.rdp import RdpAccountant

        accountant = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
        accountant.compose(dp_accounting.GaussianDpEvent(self.noise), participations)
        epsilon = float(accountant.get_epsilon(self.delta))
        return epsilon if math.isfinite(epsilon) else None
