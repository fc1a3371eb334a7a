"""Simple graph convolution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import Hops
from fgl_bench.models._decoupled import Columns, Decoupled


@dataclass
class SGC(Decoupled):
    """Wu et al., ICML 2019: ``S^K X W + b``, as PyG's ``SGConv``; one linear layer, no non-linearity, no dropout.

    (OpenFGL's model of this name is a stack of one-hop layers with ReLU in between, i.e. a GCN.)

    Attributes:
        hops: K; 0 is logistic regression.
    """

    dropout: ClassVar[float] = 0.0

    hops: int

    def hop_matrices(self) -> Hops:
        return Hops(((0.0,) * self.hops + (1.0,),))

    def columns(self, num_classes: int) -> Columns:
        return Columns(num_classes, self.hops * num_classes, num_classes)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        shapes = {"linear0.weight": (num_features, num_classes), "linear0.bias": (num_classes,)}
        return ParameterLayout(shapes, inputs=("linear0.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        return {name: like_linear(layout, name, generator) for name in layout.shapes}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return self.series(batch, parameters["linear0.weight"]) + parameters["linear0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        return Output(first, first)
