"""GraphSAGE with the mean aggregator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, mean_operator
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.linear import linear
from fgl_bench.models.base import Backbone, Output, Parameters


@dataclass
class GraphSAGE(Backbone):
    """Hamilton et al., NeurIPS 2017, as PyG's ``SAGEConv``: ``H' = dropout(ReLU(mean_N(v) H W_l + H W_r + b))``, the last layer plain.

    Full batch, no sampling and no L2 normalisation; the mean over no neighbours is 0. The two weights of a layer lie side
    by side in one matrix ``[in, 2 out]``, W_l first, so that the features are multiplied once.

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
            shapes[f"conv{i}.weight"], shapes[f"conv{i}.bias"] = (wide, 2 * narrow), (narrow,)
        return ParameterLayout(shapes, inputs=("conv0.weight",))

    def initialise(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Weights and biases uniform within 1/sqrt(in), as PyG's linear layers inside ``SAGEConv`` draw them."""
        parameters = {}
        for name, shape in layout.shapes.items():
            fan = layout.shapes[name.replace("bias", "weight")][0]
            parameters[name] = torch.empty(shape, dtype=torch.float64).uniform_(-(fan**-0.5), fan**-0.5, generator=generator)
        return parameters

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return _gather(batch.features @ parameters["conv0.weight"], batch, parameters["conv0.bias"])

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        hidden, out = first, first
        for i in range(1, self.layers):
            hidden = dropout(torch.relu(out))
            out = _gather(linear(hidden, parameters[f"conv{i}.weight"]), batch, parameters[f"conv{i}.bias"])
        return Output(hidden, out)


def _gather(product: Tensor, batch: Batch, bias: Tensor) -> Tensor:
    """``[k, n, 2h]`` to ``[k, n, h]``: the neighbours' mean of the first half, the node's own second half, the bias."""
    near, own = product.chunk(2, -1)
    return batch.operator(mean_operator) @ near + own + bias[:, None]
