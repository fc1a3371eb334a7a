"""One fused Adam, or AdamW, over the rows of all replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from fgl_bench.engine.shapes import Float
from fgl_bench.engine.transfer import put


class Adam:
    """Adam with L2 weight decay inside the gradient, as ``torch.optim.Adam``, for ``count`` replicas of ``size`` scalars.

    Every replica has its own step count, so replicas may train at different times (semi-asynchronous trips, partial
    participation). State is never communicated.
    """

    _function: Callable[..., None] = staticmethod(adam)

    def __init__(
        self,
        count: int,
        size: int,
        lr: float,
        weight_decay: float,
        dtype: torch.dtype,
        device: torch.device,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
    ):
        self.lr, self.weight_decay, self.beta1, self.beta2, self.eps = lr, weight_decay, beta1, beta2, eps
        self.first = torch.zeros(count, size, dtype=dtype, device=device)
        self.second = torch.zeros(count, size, dtype=dtype, device=device)
        self.steps = torch.zeros(count, dtype=torch.float32, device=device)
        self._rows = [list(state.unbind()) for state in (self.first, self.second, self.steps)]
        # While all replicas step together, one flat tensor with one step count suffices.
        self._together, self._count = True, torch.zeros((), dtype=torch.float32, device=device)

    @property
    def moments(self) -> tuple[Float[Tensor, "B P"], ...]:
        """The running moments, ``[count, size]`` each."""
        return self.first, self.second

    def step(
        self, theta: Float[Tensor, "k P"], gradient: Float[Tensor, "k P"], rows: Sequence[int], able: Sequence[int] | None = None
    ) -> None:
        """Update the models ``theta [k, P]`` in place from ``gradient [k, P]``.

        Args:
            rows: the k replicas whose state belongs to them.
            able: positions among the k that take the step; None means all.
        """
        if self._together and able is None and list(rows) == list(range(len(self.first))):
            self._update([theta], [gradient], [self.first], [self.second], [self._count])
            return
        self._part()
        able = range(len(rows)) if able is None else able
        states = ([state[rows[i]] for i in able] for state in self._rows)
        if len(able):
            self._update([theta[i] for i in able], [gradient[i] for i in able], *states)

    def _update(self, theta: list[Tensor], gradient: list[Tensor], first: list[Tensor], second: list[Tensor], steps: list[Tensor]) -> None:
        self._function(
            theta, gradient, first, second, [], steps,
            foreach=False, fused=True, amsgrad=False, beta1=self.beta1, beta2=self.beta2, lr=self.lr, weight_decay=self.weight_decay,
            eps=self.eps, maximize=False,
        )  # fmt: skip

    def _part(self) -> None:
        """Give every replica a step count of its own."""
        if self._together:
            self._together = False
            self.steps.copy_(self._count.expand_as(self.steps))

    def reset(self, rows: Sequence[int]) -> None:
        """Reset the state of these replicas (``opt_state=reset``)."""
        if len(rows) == len(self.first):
            for state in (self.first, self.second, self.steps, self._count):
                state.zero_()
            return
        self._part()
        index = put(list(rows), self.steps.device)
        for state in (self.first, self.second, self.steps):
            state.index_fill_(0, index, 0)  # state[index] = 0 would make a GPU wait for the zero


class AdamW(Adam):
    """:class:`Adam` with decoupled weight decay, ``theta <- (1 - lr weight_decay) theta`` before each step, as ``torch.optim.AdamW``."""

    _function = staticmethod(adamw)
