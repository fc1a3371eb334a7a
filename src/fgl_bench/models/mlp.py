"""Multi-layer perceptron, which ignores the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.linear import affine
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models.base import Backbone


@dataclass
class MLP(Backbone):
    """``H' = dropout(ReLU(H W + b))``, the last layer plain: the GCN on a graph without edges.

    Attributes:
        hidden: width of the hidden layers.
        layers: number of linear layers.
        dropout: probability of zeroing a hidden unit.
    """

    needs_neighbors: ClassVar[bool] = False

    hidden: int
    layers: int
    dropout: float

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        widths = [num_features, *[self.hidden] * (self.layers - 1), num_classes]
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
            shapes[f"linear{i}.weight"], shapes[f"linear{i}.bias"] = (wide, narrow), (narrow,)
        return ParameterLayout(shapes, inputs=("linear0.weight",))

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return batch.features @ parameters["linear0.weight"] + parameters["linear0.bias"][:, None]

    def first_of(self, parameters: Parameters, part: Part) -> Tensor:
        return self.first(parameters, part)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        hidden, out = first, first
        for i in range(1, self.layers):
            hidden = dropout(torch.relu(out))
            out = affine(hidden, parameters, f"linear{i}")
        return Output(hidden, out)
