"""Graph neural network via bidirectional propagation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import Hops
from fgl_bench.errors import UserError
from fgl_bench.models._decoupled import Columns, Decoupled, Perceptron, xavier


@dataclass
class GBP(Decoupled):
    """Chen et al., NeurIPS 2020: ``Z = sum_{l=0..K} beta (1 - beta)^l S_r^l X``, then a perceptron.

    Resolutions: the series is truncated at K and otherwise exact (the authors push residues up to a threshold); its weights sum to
    ``1 - (1 - beta)^(K+1)`` and are not normalized; the perceptron is FedGTA's (biases, one trained ReLU slope, dropout on hidden
    layers only), not the authors' (no biases, dropout on the input, residuals).

    Attributes:
        hops: K.
        beta: decay of the weights.
        r: exponent of ``S_r = D^(r-1) (A+I) D^-r``; 0.5 is symmetric.
        hidden: width of the hidden layers.
        layers: number of linear layers.
        dropout: probability of zeroing a hidden unit.
    """

    hops: int
    beta: float
    r: float
    hidden: int
    layers: int
    dropout: float

    def __post_init__(self) -> None:
        for key in ("beta", "r"):
            if not 0 <= getattr(self, key) <= 1:
                raise UserError(f"model.{key}={getattr(self, key)}: must be between 0 and 1")

    def hop_matrices(self) -> Hops:
        return Hops((tuple(self.beta * (1 - self.beta) ** hop for hop in range(self.hops + 1)),), self.r)

    def perceptron(self, num_features: int, num_classes: int) -> Perceptron:
        return Perceptron((num_features, *[self.hidden] * (self.layers - 1), num_classes))

    def columns(self, num_classes: int) -> Columns:
        width = self.hidden if self.layers > 1 else num_classes
        return Columns(width, self.hops * width, width)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        return ParameterLayout(self.perceptron(num_features, num_classes).shapes(), inputs=("linear0.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        return xavier(layout, generator, {})

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return self.series(batch, parameters["linear0.weight"]) + parameters["linear0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        return self.perceptron(0, 0)(parameters, first, dropout, since=1)
