"""Gradient descent with heavy-ball momentum over the rows of all replicas."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fgl_bench.engine.shapes import Float


class HeavyBall:
    """``v <- momentum v + g``, ``theta <- theta - lr v`` as ``torch.optim.SGD``, with the interface of ``engine.adam.Adam``.

    Weight decay is part of the gradient. State is never communicated.
    """

    def __init__(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device, momentum: float):
        self.lr, self.weight_decay, self.momentum = lr, weight_decay, momentum
        self.velocity = torch.zeros(count, size, dtype=dtype, device=device)

    @property
    def moments(self) -> tuple[Float[Tensor, "B P"], ...]:
        return (self.velocity,)

    def step(
        self, theta: Float[Tensor, "k P"], gradient: Float[Tensor, "k P"], rows: Sequence[int], able: Sequence[int] | None = None
    ) -> None:
        """Update the models ``theta [k, P]`` of the replicas ``rows`` in place; ``able`` as in ``Adam.step``."""
        if able is None and len(rows) == len(self.velocity):
            self._update(theta, gradient, self.velocity)
            return
        here = torch.as_tensor(list(range(len(rows)) if able is None else able), dtype=torch.int64, device=theta.device)
        whose = torch.as_tensor(list(rows), device=theta.device)[here]
        part, velocity = theta[here], self.velocity[whose]
        self._update(part, gradient[here], velocity)
        theta[here], self.velocity[whose] = part, velocity

    def _update(self, theta: Float[Tensor, "k P"], gradient: Float[Tensor, "k P"], velocity: Float[Tensor, "k P"]) -> None:
        velocity.mul_(self.momentum).add_(gradient).add_(theta, alpha=self.weight_decay)
        theta.sub_(velocity, alpha=self.lr)

    def reset(self, rows: Sequence[int]) -> None:
        """Forget the state of these replicas."""
        self.velocity[torch.as_tensor(list(rows), device=self.velocity.device)] = 0
