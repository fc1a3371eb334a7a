"""Graph convolutional network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.linear import linear
from fgl_bench.models.base import Backbone, Output, Parameters


@dataclass
class GCN(Backbone):
    """Kipf & Welling, ICLR 2017, as OpenFGL builds it: ``H' = dropout(ReLU(S H W + b))``, the last layer plain.

    No dropout on the input features; the bias is added after propagation.

    Attributes:
        hidden: width of the hidden layers.
        layers: number of convolutions.
        dropout: probability of zeroing a hidden unit.
    """

    hidden: int
    layers: int
    dropout: float

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        widths = [num_features, *[self.hidden] * (self.layers - 1), num_classes]
        shapes = {}
        for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
            shapes[f"conv{i}.weight"], shapes[f"conv{i}.bias"] = (wide, narrow), (narrow,)
        return ParameterLayout(shapes, inputs=("conv0.weight",))

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        product = batch.operator(gcn_operator) @ (batch.features @ parameters["conv0.weight"])
        return product + parameters["conv0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        propagate, hidden, out = batch.operator(gcn_operator), first, first
        for i in range(1, self.layers):
            hidden = dropout(torch.relu(out))
            out = propagate @ linear(hidden, parameters[f"conv{i}.weight"]) + parameters[f"conv{i}.bias"][:, None]
        return Output(hidden, out)
