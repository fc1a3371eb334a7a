"""One fused Adam over the rows of all replicas."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam


class Adam:
    """Adam with L2 weight decay inside the gradient, as ``torch.optim.Adam``, for ``count`` replicas of ``size`` scalars.

    Every replica has its own step count, so replicas may train at different times (semi-asynchronous trips, partial
    participation). State is never communicated.
    """

    def __init__(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device):
        self.lr, self.weight_decay = lr, weight_decay
        self.first = torch.zeros(count, size, dtype=dtype, device=device)
        self.second = torch.zeros(count, size, dtype=dtype, device=device)
        self.steps = torch.zeros(count, dtype=torch.float32, device=device)
        self._rows = [list(self.first.unbind()), list(self.second.unbind()), list(self.steps.unbind())]

    def step(self, theta: Sequence[Tensor], gradient: Sequence[Tensor], rows: Sequence[int]) -> None:
        """Update the models ``theta`` (rows ``[P]``) in place; ``rows`` names the replicas whose state belongs to them."""
        if not rows:
            return
        first, second, steps = ([state[i] for i in rows] for state in self._rows)
        adam(
            list(theta), list(gradient), first, second, [], steps,
            foreach=False, fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=self.lr, weight_decay=self.weight_decay,
            eps=1e-8, maximize=False,
        )  # fmt: skip

    def reset(self, rows: Sequence[int]) -> None:
        """Forget the state of these replicas (``opt_state=reset``)."""
        index = torch.as_tensor(list(rows), device=self.steps.device)
        for state in (self.first, self.second, self.steps):
            state[index] = 0
