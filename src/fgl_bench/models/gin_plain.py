"""Graph isomorphism network without normalization, after a linear layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models.base import Backbone


@dataclass
class GINPlain(Backbone):
    """Xu et al., ICLR 2019, as in the code of GCFL and FedStar: ``H_0 = X W + b``, ``H' = dropout(ReLU(MLP(H + A H)))``.

    The MLP is Linear, ReLU, Linear, of the width h of the layers. With ``head=linear`` a linear layer gives the logits.

    Attributes:
        hidden: width h.
        layers: number of convolutions.
        dropout: probability of zeroing a hidden unit.
        head: ``conv``, for tasks with layers of their own, or ``linear``.
    """

    hidden: int
    layers: int
    dropout: float
    head: Literal["linear", "conv"]

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        h = self.hidden
        shapes: dict[str, tuple[int, ...]] = {"input.weight": (num_features, h), "input.bias": (h,)}
        for i in range(self.layers):
            out = num_classes if self.head == "conv" and i + 1 == self.layers else h
            shapes |= {f"conv{i}.weight": (h, out), f"conv{i}.bias": (out,), f"conv{i}.out.weight": (out, out), f"conv{i}.out.bias": (out,)}
        head = {"head.weight": (h, num_classes), "head.bias": (num_classes,)} if self.head == "linear" else {}
        return ParameterLayout({**shapes, **head}, inputs=("input.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return weights and biases uniform within 1/sqrt(in), as in PyTorch."""
        return {name: like_linear(layout, name, generator) for name in layout.shapes}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return convolve(batch.features @ parameters["input.weight"] + parameters["input.bias"][:, None], 0, parameters, batch)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        hidden = dropout(first)
        for i in range(1, self.layers):
            hidden = dropout(convolve(hidden, i, parameters, batch))
        return Output(hidden, affine(hidden, parameters, "head") if self.head == "linear" else hidden)


def convolve(x: Tensor, layer: int, parameters: Parameters, batch: Batch) -> Tensor:
    """Return ``ReLU(MLP(x + A x))``, ``[k, n, h]``."""
    inner = torch.relu(affine(x + batch.operator(adjacency) @ x, parameters, f"conv{layer}"))
    return torch.relu(affine(inner, parameters, f"conv{layer}.out"))
