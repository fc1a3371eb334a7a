"""OptBasisGNN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, plain_operator
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models.base import Backbone

SHORTEST = 1e-6  # a shorter new direction is a rounding error


@dataclass
class OptBasis(Backbone):
    """Guo & Wei, ICML 2023: ``Z = sum_k alpha_k * h_k`` with an orthonormal Krylov basis per hidden channel, then a linear layer.

    ``H = dropout(ReLU(X W_0 + b_0))``; ``h_0 = H / |H|`` per column over the client's nodes; ``h_k`` is ``P h_{k-1}`` orthogonalized
    against h_{k-1} and h_{k-2} and normalized. alpha has a coefficient per order and channel. Gradients flow through norms and inner
    products. Scales depend on the number of nodes, since columns have length one.

    Resolutions: no dropout on the input features; zero vectors for a zero channel and for an exhausted Krylov space (the code adds
    noise of 1e-5 to H instead).

    Attributes:
        orders: K.
        hidden: width, the number of channels.
        dropout: probability of zeroing an entry of H and of Z.
    """

    orders: int
    hidden: int
    dropout: float

    def __post_init__(self) -> None:
        if self.orders < 0 or self.hidden < 1:
            raise ValueError(f"orders={self.orders}, hidden={self.hidden}: at least 0 and 1")

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        shapes = {
            "lin0.weight": (num_features, self.hidden), "lin0.bias": (self.hidden,), "filter": (self.orders + 1, self.hidden),
            "lin1.weight": (self.hidden, num_classes), "lin1.bias": (num_classes,),
        }  # fmt: skip
        return ParameterLayout(shapes, inputs=("lin0.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return PyTorch's initialization of linear layers; coefficients are 1 for order 0 and 0 for the others."""
        parameters = {"filter": torch.zeros(layout.shapes["filter"], dtype=torch.float64)}
        parameters["filter"][0] = 1
        for name in layout.shapes:
            if name != "filter":
                parameters[name] = like_linear(layout, name, generator)
        return parameters

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return batch.features @ parameters["lin0.weight"] + parameters["lin0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        signal = dropout(torch.relu(first)) * batch.valid[..., None]
        matrix, coefficients = batch.operator(plain_operator), parameters["filter"][:, :, None]
        now, before = _unit(signal, 1e-8), None
        total = coefficients[:, 0] * now
        for k in range(1, self.orders + 1):
            new = matrix @ now
            rest = new - (new * now).sum(1, keepdim=True) * now
            if before is not None:
                rest = rest - (new * before).sum(1, keepdim=True) * before
            before, now = now, _unit(rest, SHORTEST)
            total = total + coefficients[:, k] * now
        hidden = dropout(total)
        return Output(hidden, affine(hidden, parameters, "lin1"))


def _unit(x: Tensor, shortest: float) -> Tensor:
    """Scale columns to length one; columns shorter than ``shortest`` become zero and get no gradient."""
    square = (x * x).sum(1, keepdim=True)
    there = square > shortest**2
    return torch.where(there, x * torch.where(there, square, 1.0).rsqrt(), 0.0)
