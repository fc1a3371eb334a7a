"""GraphSAGE with the mean aggregator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, mean_operator
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models._decoupled import Columns, FirstHop, stacked
from fgl_bench.models.base import hidden_widths


class Convolved(ABC):
    """Input features with a cheaper first layer than a product of all rows."""

    @abstractmethod
    def convolved(self, batch: Batch, weight: Tensor) -> Tensor:
        """Return ``mean_N(v) X W_l + X W_r`` with ``W = [W_l W_r]``: ``[k, F, 2h]`` to ``[k, n, h]``; ``batch`` holds these features."""


@dataclass
class GraphSAGE(FirstHop):
    """Hamilton et al., NeurIPS 2017, as PyG's ``SAGEConv``: ``H' = dropout(ReLU(mean_N(v) H W_l + H W_r + b))``, the last layer plain.

    Full batch, no sampling and no L2 normalization; the mean over no neighbors is 0. The two weights of a layer are
    concatenated to ``[in, 2 out]``, W_l first, so the features are multiplied once.

    Attributes:
        hidden: width of the hidden layers, or a list of widths.
        layers: number of convolutions.
        dropout: probability of zeroing a hidden unit.
        head: the last convolution gives the logits (``conv``), or a ``linear`` layer after all of them.
        propagation: ``lazy`` multiplies the features first, ``precomputed`` uses means over neighbors.
    """

    hop = mean_operator

    hidden: int | list[int]
    layers: int
    dropout: float
    head: Literal["conv", "linear"] = "conv"

    def __post_init__(self) -> None:
        self._widths = hidden_widths(self.hidden, self.layers, self.head)

    def columns(self, num_classes: int) -> Columns:
        narrow = [*self._widths, num_classes][0]
        return Columns(2 * narrow, narrow, 2 * narrow)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        return stacked([num_features, *self._widths, num_classes], self.layers, sides=2)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return weights and biases uniform within 1/sqrt(in), as in PyG's ``SAGEConv``."""
        return {name: like_linear(layout, name, generator) for name in layout.shapes}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        weight, bias = parameters["conv0.weight"], parameters["conv0.bias"]
        if isinstance(batch.features, Convolved):
            return batch.features.convolved(batch, weight) + bias[:, None]
        if not self.uses_precomputed(batch):
            return _gather(batch.features @ weight, batch, bias)
        near, own = weight.chunk(2, -1)
        return self.series(batch, near) + batch.features @ own.contiguous() + bias[:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        hidden, out = first, first
        for i in range(1, self.layers):
            hidden = dropout(torch.relu(out))
            out = self.convolution(parameters, batch, hidden, i)
        if self.head == "conv":
            return Output(hidden, out)
        hidden = dropout(torch.relu(out))
        return Output(hidden, affine(hidden, parameters, "head"))

    def convolution(self, parameters: Parameters, batch: Batch, hidden: Tensor, i: int) -> Tensor:
        """Return the output ``[k, n, h]`` of convolution ``i``, not the first, before its nonlinearity."""
        return _gather(linear(hidden, parameters[f"conv{i}.weight"]), batch, parameters[f"conv{i}.bias"])


def _gather(product: Tensor, batch: Batch, bias: Tensor) -> Tensor:
    """Return the neighbors' mean of the first half of ``product [k, n, 2h]``, plus the node's second half, plus the bias: ``[k, n, h]``."""
    near, own = product.chunk(2, -1)
    return batch.operator(mean_operator) @ near + own + bias[:, None]
