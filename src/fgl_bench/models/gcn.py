"""Graph convolutional network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models._decoupled import Columns, FirstHop, stacked
from fgl_bench.models.base import hidden_widths


@dataclass
class GCN(FirstHop):
    """Kipf & Welling, ICLR 2017, as in OpenFGL: ``H' = dropout(ReLU(S H W + b))``, the last layer plain.

    No dropout on the input features; the bias is added after propagation. With ``head="linear"`` every convolution is a hidden
    layer and a linear layer follows, as in FED-PUB (Baek et al., ICML 2023) and in papers that compare with it.

    Attributes:
        hidden: width of the hidden layers.
        layers: number of convolutions.
        dropout: probability of zeroing a hidden unit.
        head: the logits come from the last convolution (``conv``) or from a linear layer after it (``linear``).
        propagation: ``lazy`` multiplies the features first, ``precomputed`` uses propagated features.
    """

    hop = gcn_operator

    hidden: int
    layers: int
    dropout: float
    head: Literal["conv", "linear"] = "conv"

    def __post_init__(self) -> None:
        self._widths = hidden_widths(self.hidden, self.layers, self.head)

    def columns(self, num_classes: int) -> Columns:
        narrow = [*self._widths, num_classes][0]
        return Columns(narrow, narrow, narrow)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        return stacked([num_features, *self._widths, num_classes], self.layers)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return Glorot-uniform convolutions with zero biases; a linear head uniform within 1/sqrt(in), as in PyTorch."""
        head = [name for name in layout.shapes if name.startswith("head.")]
        return {**super().init_parameters(layout, generator), **{name: like_linear(layout, name, generator) for name in head}}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return self.series(batch, parameters["conv0.weight"]) + parameters["conv0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        propagate, hidden, out = batch.operator(gcn_operator), first, first
        for i in range(1, self.layers):
            hidden = dropout(torch.relu(out))
            out = propagate @ linear(hidden, parameters[f"conv{i}.weight"]) + parameters[f"conv{i}.bias"][:, None]
        if self.head == "conv":
            return Output(hidden, out)
        hidden = dropout(torch.relu(out))
        return Output(hidden, affine(hidden, parameters, "head"))
