"""Simple spectral graph convolution."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.engine.propagation import Hops
from fgl_bench.errors import UserError
from fgl_bench.models.sgc import SGC


@dataclass
class S2GC(SGC):
    """Zhu & Koniusz, ICLR 2021: ``(alpha X + (1 - alpha)/K sum_{k=1..K} S^k X) W + b``, as in the authors' code and PyG's ``SSGConv``.

    (FedGTA writes the plain sum over k = 0..K, with a different weight of hop 0 and a different scale.)

    Attributes:
        hops: K, at least 1.
        alpha: share of the node's own features; 1 is logistic regression.
    """

    alpha: float

    def __post_init__(self) -> None:
        if self.hops < 1:
            raise UserError(f"model.hops={self.hops}: s2gc needs at least 1")
        if not 0 <= self.alpha <= 1:
            raise UserError(f"model.alpha={self.alpha}: must be between 0 and 1")

    def hop_matrices(self) -> Hops:
        return Hops(((self.alpha, *[(1 - self.alpha) / self.hops] * self.hops),))
