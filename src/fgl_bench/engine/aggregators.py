"""Rules by which a server makes one model of all uploads, other than the mean: robust against some malicious clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.engine import Float, Int
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.shard import Shard
from fgl_bench.errors import Range, UserError, above, at_least


class Aggregator:
    """A rule that replaces the weighted mean of a method whose server averages all uploads into one model.

    Uploads that the method gives no weight, such as those of earlier rounds, are left out.

    Class attributes:
        key, default: the group and its default, for error messages.
        hides: True if the server must see the sum of the uploads only.
    """

    key: ClassVar[str] = "aggregator"
    default: ClassVar[str] = "aggregator=mean"
    hides: ClassVar[bool] = False

    def combine(
        self,
        uploads: Float[Tensor, "S c P"],
        received: Float[Tensor, "S c P"],
        weights: Float[Tensor, "S C"],
        shard: Shard,
        key: Int[Tensor, " S"],
    ) -> Float[Tensor, "S P"]:
        """Return the servers' models.

        Args:
            uploads, received: of this worker's clients: what they uploaded, and the models that they started from.
            weights: those of the mean, of all clients.
            key: keys of random draws.
        """
        models = []
        for rows, weight in zip(shard.whole(uploads), weights, strict=True):
            counted = weight > 0
            mine = rows[counted]
            models.append(self.center(mine, weight[counted].to(rows.dtype)) if len(mine) else rows.new_zeros(rows.shape[1]))
        return torch.stack(models)

    def center(self, uploads: Float[Tensor, "m P"], weights: Float[Tensor, " m"]) -> Float[Tensor, " P"]:
        """Return the model of m uploads with weights that sum to one."""
        raise NotImplementedError  # abstract


@dataclass
class Mean(Aggregator):
    """The method's own weighted mean."""

    def center(self, uploads: Float[Tensor, "m P"], weights: Float[Tensor, " m"]) -> Float[Tensor, " P"]:
        return weights @ uploads


@dataclass
class Median(Aggregator):
    """The median of every parameter, without weights (Yin et al., ICML 2018, option I)."""

    def center(self, uploads: Float[Tensor, "m P"], weights: Float[Tensor, " m"]) -> Float[Tensor, " P"]:
        ordered, count = uploads.sort(0).values, len(uploads)
        return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


@dataclass
class _Fraction(Aggregator):
    """A rule that expects ``round(fraction * m)`` malicious uploads among m."""

    ranges: ClassVar[dict[str, Range]] = {"fraction": Range(0, 0.5, below=True)}

    fraction: float

    def expected(self, uploads: Tensor) -> int:
        """Return the expected number of malicious uploads."""
        return round(self.fraction * len(uploads))


@dataclass
class TrimmedMean(_Fraction):
    """The mean of every parameter without its ``round(fraction * m)`` smallest and largest values (Yin et al., ICML 2018, option II)."""

    def center(self, uploads: Float[Tensor, "m P"], weights: Float[Tensor, " m"]) -> Float[Tensor, " P"]:
        cut, count = self.expected(uploads), len(uploads)
        if 2 * cut >= count:
            raise UserError(f"aggregator.fraction={self.fraction}: trims all {count} uploads of a round; lower it")
        return uploads.sort(0).values[cut : count - cut].mean(0)


@dataclass
class Krum(_Fraction):
    """The upload with the smallest sum of squared distances to its ``m - f - 2`` nearest others (Blanchard et al., NeurIPS 2017).

    f is ``round(fraction * m)``. The paper's guarantee needs ``m >= 2 f + 3``.
    """

    def center(self, uploads: Float[Tensor, "m P"], weights: Float[Tensor, " m"]) -> Float[Tensor, " P"]:
        return uploads[self.ordered(uploads)[: self.selected(uploads)]].mean(0)

    def selected(self, uploads: Tensor) -> int:
        """Return the number of uploads that are averaged."""
        return 1

    def ordered(self, uploads: Float[Tensor, "m P"]) -> Tensor:
        """Return the numbers of the uploads by their sums of distances, smallest first."""
        count = len(uploads)
        nearest = count - self.expected(uploads) - 2
        if nearest < 1:
            raise UserError(
                f"aggregator.fraction={self.fraction}: a round with {count} uploads leaves no neighbor to compare with (m - f - 2 < 1)"
            )
        distances = torch.cdist(uploads, uploads, compute_mode="donot_use_mm_for_euclid_dist").square().fill_diagonal_(torch.inf)
        return distances.sort(1).values[:, :nearest].sum(1).argsort(stable=True)


@dataclass
class MultiKrum(Krum):
    """The mean of the ``m - f`` uploads that :class:`Krum` ranks first, without weights."""

    def selected(self, uploads: Tensor) -> int:
        return len(uploads) - self.expected(uploads)


@dataclass
class GeometricMedian(Aggregator):
    """The point with the smallest weighted sum of distances to the uploads, by the smoothed Weiszfeld algorithm.

    Pillutla et al., IEEE Transactions on Signal Processing 2022 (RFA), algorithm 2, from the weighted mean on.

    Attributes:
        iterations: number of steps.
        smoothing: smallest distance by which a weight is divided.
    """

    ranges: ClassVar[dict[str, Range]] = {"iterations": at_least(1), "smoothing": above(0)}

    iterations: int
    smoothing: float

    def center(self, uploads: Float[Tensor, "m P"], weights: Float[Tensor, " m"]) -> Float[Tensor, " P"]:
        point = weights @ uploads
        for _ in range(self.iterations):
            pull = weights / (uploads - point).norm(dim=1).clamp(min=self.smoothing)
            point = (pull / pull.sum()) @ uploads
        return point


@dataclass(frozen=True)
class Aggregated(Mixing):
    """A mixing into one model per seed, which ``rule`` makes of the shared parameters instead of the weighted mean."""

    rule: Aggregator = field(kw_only=True)
    key: Int[Tensor, " S"] = field(kw_only=True)

    def _common(
        self, models: Float[Tensor, "S c P"], received: Float[Tensor, "S c P"], layout: ParameterLayout, shard: Shard
    ) -> Float[Tensor, "S 1 P"]:
        names = layout.shapes if self.shared is None else self.shared
        columns = [range(start := layout.offsets[name], start + layout.numel(name)) for name in names]
        index = torch.tensor([column for part in columns for column in part], device=models.device)
        common = models.new_zeros(len(models), 1, models.shape[2])
        common[:, 0, index] = self.rule.combine(models[..., index], received[..., index], self.weights[:, 0], shard, self.key)
        return common
