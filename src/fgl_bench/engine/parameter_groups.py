"""Parameters with a learning rate and a weight decay of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.shapes import Float


class Rates(NamedTuple):
    """Attributes: lr, weight_decay of a parameter; None takes the run's."""

    lr: float | None = None
    weight_decay: float | None = None


class Grouped:
    """An optimizer of whole rows, and another one for every parameter with rates of its own; with the interface of ``engine.adam.Adam``.

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
        """Update the models ``theta [k, P]`` in place, as ``Adam.step`` does."""
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
