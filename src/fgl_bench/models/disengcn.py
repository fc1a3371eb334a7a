"""Disentangled graph convolutional network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.kernels.routing import convolve
from fgl_bench.engine.layout import ParameterLayout, uniform
from fgl_bench.engine.linear import affine
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models.base import Backbone

SLOPE = 0.01  # of the LeakyReLU


@dataclass
class DisenGCN(Backbone):
    """Ma et al., ICML 2019, as in FedIIH: a linear projection, parameter-free routing layers, a linear classifier.

    ``H_0 = dropout(LeakyReLU(X U + b))``; every layer scales each of the K slices of a row to length one, routes (see
    :func:`~fgl_bench.engine.kernels.routing.route`), and applies LeakyReLU and dropout. Only the projection and the classifier are trained.

    Attributes:
        factors: K, number of latent factors.
        width: d, width of a factor; a hidden row has K d numbers.
        layers: number of routing layers.
        iterations: T, routing iterations per layer.
        temperature: temperature of the softmax over factors.
        dropout: probability of zeroing a hidden unit.
    """

    factors: int
    width: int
    layers: int
    iterations: int
    temperature: float
    dropout: float

    def __post_init__(self) -> None:
        for key in ("factors", "width", "layers", "iterations"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}={getattr(self, key)}: must be at least 1")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature}: must be above 0")

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        hidden = self.factors * self.width
        shapes = {"projection.weight": (num_features, hidden), "projection.bias": (hidden,)}
        shapes |= {"classifier.weight": (hidden, num_classes), "classifier.bias": (num_classes,)}
        return ParameterLayout(shapes, inputs=("projection.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return all parameters uniform within 1/sqrt(K d)."""
        return {name: uniform(shape, self.factors * self.width, generator) for name, shape in layout.shapes.items()}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return batch.features @ parameters["projection.weight"] + parameters["projection.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        hidden = dropout(F.leaky_relu(first, SLOPE))
        for _ in range(self.layers):
            hidden = dropout(self.convolve(hidden, batch))
        return Output(hidden, affine(hidden, parameters, "classifier"))

    def convolve(self, hidden: Tensor, batch: Batch, slope: float = SLOPE) -> Tensor:
        """Apply a routing layer and a LeakyReLU of this slope (1: no activation), ``[k, n, K * d]`` to the same shape."""
        slices = hidden.unflatten(2, (self.factors, self.width))
        return convolve(batch.operator(adjacency), slices, self.iterations, self.temperature, slope).flatten(2)
