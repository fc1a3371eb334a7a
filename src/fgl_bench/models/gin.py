"""Graph isomorphism network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine, linear, without_gradient
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models._decoupled import Columns, FirstHop
from fgl_bench.models.base import hidden_widths

EPSILON = 1e-5  # added to variances, as PyTorch's BatchNorm1d


@dataclass
class GIN(FirstHop):
    """Xu et al., ICLR 2019, as in OpenFGL without pooling: ``H' = dropout(ReLU(BN(MLP((1 + eps) H + A H))))``.

    The MLP is Linear(in, 2h), BN, ReLU, Linear(2h, h); eps is trained and starts at 0. After the last convolution comes
    OpenFGL's classifier after pooling: Linear(h, h), BN, ReLU, dropout, Linear(h, Y) (``head=mlp``), or one linear layer, or nothing
    (``conv``, for tasks with layers of their own).

    Batch normalization: every forward pass, in training and evaluation, takes mean and variance over the client's nodes in the
    current graph. There are no running statistics, because every aggregation rule would have to handle them (averaging them across
    clients with different labels is known to harm, leaving them out breaks received models), and a full-batch client sees all of
    its nodes. Scale and shift are parameters and are aggregated like the others. The output of a client with one node is the
    shift. ``norm=none`` leaves out normalization and its parameters.

    Attributes:
        hidden: width h of the hidden layers, or a list of widths.
        layers: number of convolutions.
        dropout: probability of zeroing a hidden unit.
        norm: ``batch`` or ``none``.
        head: ``mlp``, ``linear`` or ``conv``.
        propagation: ``lazy`` multiplies the features first, ``precomputed`` uses sums over neighbors.
    """

    hop = adjacency

    hidden: int | list[int]
    layers: int
    dropout: float
    norm: Literal["batch", "none"]
    head: Literal["mlp", "linear", "conv"]

    def __post_init__(self) -> None:
        self._widths = hidden_widths(self.hidden, self.layers, "conv" if self.head == "conv" else "linear")

    def columns(self, num_classes: int) -> Columns:
        narrow = [*self._widths, num_classes][0]
        return Columns(2 * narrow, 2 * narrow, 4 * narrow)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        shapes: dict[str, tuple[int, ...]] = {}
        wide = num_features
        for i, narrow in enumerate([*self._widths, num_classes][: self.layers]):
            shapes |= {f"conv{i}.weight": (wide, 2 * narrow), f"conv{i}.bias": (2 * narrow,), f"conv{i}.epsilon": (1,)}
            shapes |= self._norm(f"conv{i}.inner", 2 * narrow)
            shapes |= {f"conv{i}.out_weight": (2 * narrow, narrow), f"conv{i}.out_bias": (narrow,)}
            shapes |= self._norm(f"conv{i}.out", narrow)
            wide = narrow
        if self.head == "conv":
            return ParameterLayout(shapes, inputs=("conv0.weight",))
        if self.head == "mlp":
            shapes |= {"middle.weight": (wide, wide), "middle.bias": (wide,), **self._norm("middle.out", wide)}
        return ParameterLayout({**shapes, "head.weight": (wide, num_classes), "head.bias": (num_classes,)}, inputs=("conv0.weight",))

    @property
    def normalizes(self) -> bool:
        return self.norm == "batch"

    def _norm(self, name: str, width: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}_scale": (width,), f"{name}_shift": (width,)} if self.norm == "batch" else {}

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return PyTorch's defaults: linear layers uniform within 1/sqrt(in), scales 1, shifts and eps 0."""
        initial = {}
        for name, shape in layout.shapes.items():
            if name.endswith("scale"):
                initial[name] = torch.ones(shape, dtype=torch.float64)
            elif name.endswith(("shift", "epsilon")):
                initial[name] = torch.zeros(shape, dtype=torch.float64)
            else:
                initial[name] = like_linear(layout, name, generator)
        return initial

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        weight, own = parameters["conv0.weight"], 1 + parameters["conv0.epsilon"][:, None]
        product = batch.features @ weight
        near = self.series(batch, weight) if self.uses_precomputed(batch) else batch.operator(adjacency) @ product
        return self._rest(0, own * product + near, parameters, batch)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        hidden, out = first, first
        for i in range(1, self.layers):
            hidden = dropout(out)
            # Propagate first: the product is wider.
            near = (1 + parameters[f"conv{i}.epsilon"][:, None]) * hidden + batch.operator(adjacency) @ hidden
            out = self._rest(i, linear(near, parameters[f"conv{i}.weight"]), parameters, batch)
        if self.head == "conv":
            return Output(hidden, out)
        hidden = dropout(out)
        if self.head == "mlp":
            middle = linear(hidden, parameters["middle.weight"]) + self._bias("middle.bias", parameters)
            hidden = dropout(torch.relu(_normalize(middle, "middle.out", parameters, batch)))
        return Output(hidden, affine(hidden, parameters, "head"))

    def _rest(self, layer: int, x: Tensor, parameters: Parameters, batch: Batch) -> Tensor:
        """Return the output of the layer after its first product."""
        x = torch.relu(_normalize(x + self._bias(f"conv{layer}.bias", parameters), f"conv{layer}.inner", parameters, batch))
        x = linear(x, parameters[f"conv{layer}.out_weight"]) + self._bias(f"conv{layer}.out_bias", parameters)
        return torch.relu(_normalize(x, f"conv{layer}.out", parameters, batch))

    def _bias(self, name: str, parameters: Parameters) -> Tensor:
        """Return the bias before a normalization, ``[k, 1, h]``; subtracting the mean cancels it."""
        bias = parameters[name][:, None]
        return without_gradient(bias) if self.norm == "batch" else bias


def _normalize(x: Tensor, name: str, parameters: Parameters, batch: Batch) -> Tensor:
    """Normalize ``x [k, n, h]`` over each client's nodes, then scale and shift; without parameters return ``x``."""
    if f"{name}_scale" not in parameters:
        return x
    valid = batch.reference.to(x.dtype)
    share = (valid / valid.sum(1, keepdim=True).clamp(min=1))[:, None]
    centred = x - share @ x
    variance = share @ centred.square()
    return centred * ((variance + EPSILON).rsqrt() * parameters[f"{name}_scale"][:, None]) + parameters[f"{name}_shift"][:, None]
