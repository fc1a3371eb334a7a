"""Scalable inception graph networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import Hops, identity, loops_operator
from fgl_bench.errors import UserError
from fgl_bench.models._decoupled import Columns, Decoupled, Perceptron, xavier


@dataclass
class SIGN(Decoupled):
    """Frasca et al., 2020: ``H = dropout(PReLU([X W_0 + b_0 | ... | S^K X W_K + b_K]))``, then a perceptron on H.

    S has self loops (PyG's ``T.SIGN`` leaves them out). The hops' weights are concatenated to ``[F, (K+1) h]``, hop 0 first. All
    layers share one trained slope.

    Attributes:
        hops: K; 0 is a perceptron.
        hidden: h, width of every hop and of the hidden layers.
        layers: number of linear layers including the hops' layer; the original has 2.
        dropout: probability of zeroing a hidden unit.
    """

    hops: int
    hidden: int
    layers: int
    dropout: float

    def __post_init__(self) -> None:
        if self.layers < 2:
            raise UserError(f"model.layers={self.layers}: sign needs at least 2, the hops' own and the last")

    def hop_matrices(self) -> Hops:
        return Hops(identity(self.hops))

    def columns(self, num_classes: int) -> Columns:
        return Columns((self.hops + 1) * self.hidden, self.hops * (self.hops + 1) // 2 * self.hidden, (self.hops + 1) * self.hidden)

    def perceptron(self, num_classes: int) -> Perceptron:
        return Perceptron(((self.hops + 1) * self.hidden, *[self.hidden] * (self.layers - 2), num_classes), 1)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        width = (self.hops + 1) * self.hidden
        shapes = {"hops.weight": (num_features, width), "hops.bias": (width,), **self.perceptron(num_classes).shapes()}
        return ParameterLayout(shapes, inputs=("hops.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        return xavier(layout, generator, {"hops.weight": (layout.shapes["hops.weight"][0], self.hidden)})

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        weight, bias = parameters["hops.weight"], parameters["hops.bias"][:, None]
        if self.uses_precomputed(batch):
            each = weight.unflatten(2, (self.hops + 1, self.hidden)).transpose(1, 2)
            return (batch.derived(self.hop_matrices()) @ each).transpose(1, 2).flatten(2) + bias
        rest, columns = batch.features @ weight, []
        operator = batch.operator(loops_operator(0.5)) if self.hops else None
        for hop in range(self.hops + 1):
            rest = operator @ rest if hop and operator is not None else rest
            columns.append(rest[..., : self.hidden])
            rest = rest[..., self.hidden :]
        return torch.cat(columns, -1) + bias

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        return self.perceptron(0)(parameters, first, dropout, since=1)
