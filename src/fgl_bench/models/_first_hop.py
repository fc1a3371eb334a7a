"""Base of message-passing backbones whose first layer is linear in the propagated features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from fgl_bench.engine.batch import Operator
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.propagation import Hops, OneHop
from fgl_bench.models._decoupled import Decoupled


@dataclass
class FirstHop(Decoupled):
    """``A (X W) = (A X) W``: the first and widest propagation can be precomputed, since no dropout precedes it.

    For dense features this saves one product of the first layer. Sparse features would become dense, so ``auto`` precomputes
    them only if that takes fewer multiplications.

    Class attributes:
        hop: A.
    """

    needs_neighbors: ClassVar[bool] = True
    hop: ClassVar[Operator]

    propagation: Literal["auto", "precomputed", "lazy"] = field(default="auto", kw_only=True)

    def hop_matrices(self) -> Hops:
        return OneHop(by=type(self).hop)


def stacked(widths: Sequence[int], layers: int, sides: int = 1) -> ParameterLayout:
    """Return the layout of convolutions ``conv0``, ..., of ``sides`` matrices ``[in, sides * out]`` and a bias, then a linear ``head``.

    Args:
        widths: of the features, the hidden representations and the logits; two more than ``layers`` with a head.
        layers: number of convolutions.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
        name, count = (f"conv{i}", sides) if i < layers else ("head", 1)
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (wide, count * narrow), (narrow,)
    return ParameterLayout(shapes, inputs=("conv0.weight",))
