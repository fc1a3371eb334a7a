"""Graph convolutional network with residual connections and layer normalization."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models._decoupled import Columns, FirstHop, stacked


@dataclass
class ResidualGCN(FirstHop):
    """Luo et al., "Classic GNNs are strong baselines", NeurIPS 2024: ``H' = dropout(ReLU(LN(S H W + H W_r + b)))``, then a linear layer.

    The paper chooses between batch and layer normalization. Layer normalization has no running statistics, which federated methods would
    have to average. The two weights of a layer are concatenated to ``[in, 2 out]``, W first.

    Attributes:
        hidden: width of the hidden layers.
        layers: number of convolutions.
        dropout: probability of zeroing a hidden unit.
        propagation: ``lazy`` multiplies the features first, ``precomputed`` uses propagated features.
    """

    hop = gcn_operator

    hidden: int
    layers: int
    dropout: float

    def columns(self, num_classes: int) -> Columns:
        return Columns(2 * self.hidden, self.hidden, 2 * self.hidden)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        plain = stacked([num_features, *[self.hidden] * self.layers, num_classes], self.layers, sides=2)
        norms = {f"conv{i}.{name}": (self.hidden,) for i in range(self.layers) for name in ("scale", "shift")}
        return ParameterLayout({**plain.shapes, **norms}, inputs=plain.inputs)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return Glorot-uniform convolutions, a linear head uniform within 1/sqrt(in), and normalizations that change nothing."""
        head = {name: like_linear(layout, name, generator) for name in layout.shapes if name.startswith("head.")}
        scales = {name: torch.ones(shape, dtype=torch.float64) for name, shape in layout.shapes.items() if name.endswith(".scale")}
        return {**super().init_parameters(layout, generator), **head, **scales}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        near, own = parameters["conv0.weight"].chunk(2, -1)
        return self.series(batch, near.contiguous()) + batch.features @ own.contiguous() + parameters["conv0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        propagate, hidden = batch.operator(gcn_operator), self._activate(parameters, 0, first, dropout)
        for i in range(1, self.layers):
            near, own = linear(hidden, parameters[f"conv{i}.weight"]).chunk(2, -1)
            out = propagate @ near.contiguous() + own + parameters[f"conv{i}.bias"][:, None]
            hidden = self._activate(parameters, i, out, dropout)
        return Output(hidden, affine(hidden, parameters, "head"))

    def _activate(self, parameters: Parameters, i: int, out: Tensor, dropout: DropoutFunction) -> Tensor:
        """Return layer i's normalization, ReLU and dropout of ``out [k, n, h]``."""
        normal = F.layer_norm(out, (self.hidden,)) * parameters[f"conv{i}.scale"][:, None] + parameters[f"conv{i}.shift"][:, None]
        return dropout(torch.relu(normal))
