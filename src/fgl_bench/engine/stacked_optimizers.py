"""Optimizers over the rows of all replicas, and parameters with a learning rate and a weight decay of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from fgl_bench.engine import Float
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.transfer import put


class StackedAdam:
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
        self.lr = self.base_lr = lr
        self.weight_decay, self.beta1, self.beta2, self.eps = weight_decay, beta1, beta2, eps
        self.first = torch.zeros(count, size, dtype=dtype, device=device)
        self.second = torch.zeros(count, size, dtype=dtype, device=device)
        self.steps = torch.zeros(count, dtype=torch.float32, device=device)
        self._rows = [list(state.unbind()) for state in (self.first, self.second, self.steps)]
        # While all replicas step together, one flat tensor with one step count suffices.
        self._in_step, self._count = True, torch.zeros((), dtype=torch.float32, device=device)

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
        if self._in_step and able is None and list(rows) == list(range(len(self.first))):
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

    def scale(self, factor: float) -> None:
        """Use this multiple of the learning rate from now on."""
        self.lr = self.base_lr * factor

    def _part(self) -> None:
        """Give every replica a step count of its own."""
        if self._in_step:
            self._in_step = False
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


class StackedAdamW(StackedAdam):
    """:class:`StackedAdam` with decoupled weight decay, as ``torch.optim.AdamW``: ``theta <- (1 - lr weight_decay) theta`` first."""

    _function = staticmethod(adamw)


class StackedSGD:
    """``v <- momentum v + g``, ``theta <- theta - lr v``, as ``torch.optim.SGD``, with the interface of :class:`StackedAdam`.

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
        self.lr = self.base_lr = lr
        self.weight_decay, self.momentum, self.nesterov = weight_decay, momentum, nesterov
        self.count = count
        self.velocity = torch.zeros(count, size if momentum else 0, dtype=dtype, device=device)

    @property
    def moments(self) -> tuple[Float[Tensor, "B P"], ...]:
        """The velocities ``[count, size]``, with momentum."""
        return (self.velocity,) if self.momentum else ()

    def step(
        self, theta: Float[Tensor, "k P"], gradient: Float[Tensor, "k P"], rows: Sequence[int], able: Sequence[int] | None = None
    ) -> None:
        """Update the models ``theta [k, P]`` of the replicas ``rows`` in place; ``able`` as in ``StackedAdam.step``."""
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

    def scale(self, factor: float) -> None:
        """Use this multiple of the learning rate from now on."""
        self.lr = self.base_lr * factor

    def reset(self, rows: Sequence[int]) -> None:
        """Forget the state of these replicas."""
        if len(rows) == self.count:
            self.velocity.zero_()
        else:
            self.velocity[put(list(rows), self.velocity.device)] = 0


class Rates(NamedTuple):
    """Attributes: lr, weight_decay of a parameter; None takes the run's."""

    lr: float | None = None
    weight_decay: float | None = None


class Grouped:
    """An optimizer of whole rows, and another one for every parameter with rates of its own; with the interface of :class:`StackedAdam`.

    A parameter of the latter kind is one slice of columns: its optimizer's step replaces what the other one made of them. Moments of
    all columns are kept in :attr:`moments`, so that a method that changes them there changes what is used.

    Args:
        make: an optimizer of rows of ``size``, from ``size, lr, weight_decay``.
        rates: of the parameters that have their own, by name.
    """

    def __init__(
        self, make: Callable[[int, float, float], Any], layout: ParameterLayout, lr: float, weight_decay: float, rates: Mapping[str, Rates]
    ):
        self.whole = make(layout.size, lr, weight_decay)
        self._parts = []
        for name, own in rates.items():
            start, size = layout.offsets[name], layout.numel(name)
            chosen = lr if own.lr is None else own.lr, weight_decay if own.weight_decay is None else own.weight_decay
            self._parts.append((slice(start, start + size), make(size, *chosen)))

    @property
    def moments(self) -> tuple[Float[Tensor, "B P"], ...]:
        return self.whole.moments

    def step(
        self, theta: Float[Tensor, "k P"], gradient: Float[Tensor, "k P"], rows: Sequence[int], able: Sequence[int] | None = None
    ) -> None:
        """Update the models ``theta [k, P]`` in place, as ``StackedAdam.step`` does."""
        before = []
        for columns, own in self._parts:
            for mine, moment in zip(own.moments, self.moments, strict=True):
                mine.copy_(moment[:, columns])
            before.append((theta[:, columns].clone(), gradient[:, columns].clone()))
        self.whole.step(theta, gradient, rows, able)
        for (columns, own), (part, slope) in zip(self._parts, before, strict=True):
            own.step(part, slope, rows, able)
            theta[:, columns] = part
            for mine, moment in zip(own.moments, self.moments, strict=True):
                moment[:, columns] = mine

    def scale(self, factor: float) -> None:
        """Use this multiple of all learning rates from now on."""
        for optimizer in (self.whole, *(own for _, own in self._parts)):
            optimizer.scale(factor)

    def reset(self, rows: Sequence[int]) -> None:
        """Reset the state of these replicas."""
        self.whole.reset(rows)
        for _, own in self._parts:
            own.reset(rows)


def grouped(
    make: Callable[[int, float, float], Any], layout: ParameterLayout, lr: float, weight_decay: float, rates: Mapping[str, Rates]
) -> Any:
    """One optimizer of whole rows where no parameter has rates of its own, else :class:`Grouped`."""
    return Grouped(make, layout, lr, weight_decay, rates) if rates else make(layout.size, lr, weight_decay)
