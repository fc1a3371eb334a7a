"""Aggregation as a row-stochastic matrix over clients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def normalise(weights: Tensor, support: Tensor | None = None) -> Tensor:
    """Non-negative ``weights [..., C]`` scaled to sum to one; uniform on ``support`` (bool, default: everywhere) where they vanish."""
    support = torch.ones_like(weights, dtype=torch.bool) if support is None else support.expand_as(weights)
    weights = torch.where(support, weights, 0.0)
    total = weights.sum(-1, keepdim=True)
    usable = (total > 1e-12) & torch.isfinite(total)
    uniform = support.to(weights.dtype) / support.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(usable, weights / torch.where(usable, total, 1.0), uniform)


def cosine(x: Tensor) -> Tensor:
    """Pairwise cosine similarity of the rows of ``x [..., C, d]``, clamped to [-1, 1]; 0 where a row is zero. ``[..., C, C]``."""
    unit = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return (unit @ unit.mT).clamp(-1.0, 1.0)


@dataclass(frozen=True)
class Mixing:
    """``theta' = M theta`` for every seed.

    Attributes:
        weights: ``[S, C, C]`` with row i what client i receives, or ``[S, 1, C]`` where every client receives the same;
            rows sum to one.
        receivers: ``[S, C]`` bool, the clients whose pending model is replaced; None means all.
        shared: names of the parameters that are aggregated; None means all. The others stay each client's own.
    """

    weights: Tensor
    receivers: Tensor | None = None
    shared: tuple[str, ...] | None = None

    def matrix(self) -> Tensor:
        """The full ``[S, C, C]``; rows of clients that receive nothing are those of the identity."""
        seeds, _, clients = self.weights.shape
        matrix = self.weights.expand(seeds, clients, clients)
        if self.receivers is None:
            return matrix
        return torch.where(self.receivers[..., None], matrix, torch.eye(clients, dtype=matrix.dtype, device=matrix.device))

    def apply(self, models: Tensor, out: Tensor, layout) -> None:
        """Write ``M models`` into ``out``; both ``[S, C, P]``, not overlapping.

        A rank-one M costs one row per seed. ``layout`` (:class:`~fgl_bench.engine.layout.ParameterLayout`) resolves ``shared``.
        """
        weights = self.weights.to(models.dtype)
        if self.receivers is None and self.shared is None and weights.shape[1] > 1:
            torch.bmm(weights, models, out=out)
            return
        mixed = torch.bmm(weights, models).expand_as(out)
        if self.shared is not None:
            own, mixed = mixed, models.clone()
            for name in self.shared:
                layout.view(mixed.flatten(0, 1), name).copy_(layout.view(own.reshape(-1, layout.size), name))
        if self.receivers is None:
            out.copy_(mixed)
        else:
            out.copy_(torch.where(self.receivers[..., None], mixed, out))
