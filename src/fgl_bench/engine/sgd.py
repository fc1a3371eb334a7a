"""Gradient descent over the rows of all replicas."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fgl_bench.engine.shapes import Float
from fgl_bench.engine.transfer import put


class SGD:
    """``v <- momentum v + g``, ``theta <- theta - lr v``, as ``torch.optim.SGD``, with the interface of ``engine.adam.Adam``.

    Nesterov's step is along ``g + momentum v``. Weight decay is part of the gradient g. Without momentum there is no state; it is
    never communicated.
    """

    def __init__(
        self,
        count: int,
        size: int,
        lr: float,
        weight_decay: float,
        dtype: torch.dtype,
        device: torch.device,
        momentum: float = 0.0,
        nesterov: bool = False,
    ):
        self.lr, self.weight_decay, self.momentum, self.nesterov = lr, weight_decay, momentum, nesterov
        self.count = count
        self.velocity = torch.zeros(count, size if momentum else 0, dtype=dtype, device=device)

    @property
    def moments(self) -> tuple[Float[Tensor, "B P"], ...]:
        """The velocities ``[count, size]``, with momentum."""
        return (self.velocity,) if self.momentum else ()

    def step(
        self, theta: Float[Tensor, "k P"], gradient: Float[Tensor, "k P"], rows: Sequence[int], able: Sequence[int] | None = None
    ) -> None:
        """Update the models ``theta [k, P]`` of the replicas ``rows`` in place; ``able`` as in ``Adam.step``."""
        if able is None and (not self.momentum or list(rows) == list(range(self.count))):
            self._update(theta, gradient, self.velocity)
            return
        here = put(list(range(len(rows)) if able is None else able), theta.device, torch.int64)
        whose = put(list(rows), theta.device)[here]
        part, velocity = theta[here], self.velocity[whose]
        self._update(part, gradient[here], velocity)
        theta[here], self.velocity[whose] = part, velocity

    def _update(self, theta: Tensor, gradient: Tensor, velocity: Tensor) -> None:
        if not self.momentum:
            theta.mul_(1 - self.lr * self.weight_decay).sub_(gradient, alpha=self.lr)
            return
        if not self.nesterov:
            velocity.mul_(self.momentum).add_(gradient).add_(theta, alpha=self.weight_decay)
            theta.sub_(velocity, alpha=self.lr)
            return
        gradient = gradient.add(theta, alpha=self.weight_decay)
        velocity.mul_(self.momentum).add_(gradient)
        theta.sub_(gradient, alpha=self.lr).sub_(velocity, alpha=self.lr * self.momentum)

    def reset(self, rows: Sequence[int]) -> None:
        """Forget the state of these replicas."""
        if len(rows) == self.count:
            self.velocity.zero_()
        else:
            self.velocity[put(list(rows), self.velocity.device)] = 0
