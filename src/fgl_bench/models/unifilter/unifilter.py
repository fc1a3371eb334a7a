"""UniFilter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction, no_dropout
from fgl_bench.engine.kernels.column_sum import combined
from fgl_bench.engine.layout import ParameterLayout, uniform
from fgl_bench.engine.linear import linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.stacked_optimizers import Rates
from fgl_bench.models.base import Spectral
from fgl_bench.models.unifilter._basis import UniBasis, signal_basis
from fgl_bench.models.unifilter._filtering import filtered


@dataclass
class UniFilter(Spectral):
    """Huang et al., ICML 2024: ``Z = sum_k gamma_k dropout(b_k)``, then an MLP.

    The basis is ``b_0 = x, b_k = tau P^k x + (1 - tau) u_k`` for every feature column x. The heterophily vectors u have unit length
    and pairwise cosine ``cos(pi / 2 (1 - h))``, where h is the homophily of the edges between training nodes. The basis is computed
    once, in double precision with full orthogonalization, from the client's edges and training labels. The MLP has no biases,
    ReLU and dropout between its layers, and a residual connection around layers of equal width.

    Without dropout before the first weight, ``(sum_k gamma_k b_k) W`` is one pass over the basis and one product. Training does not
    propagate: only the filter and the first weight are applied to the basis.

    Resolutions: equal-angle vectors by the formula (``basis=code``: the released code, whose step length uses b_{k-1}); cosines of
    at least 0.001; ``default_homophily`` without an edge between training nodes; zero vectors once the Krylov space is exhausted; one
    coefficient per order, as in the paper (``per_feature``: one per order and feature, as in the released code and FedGSP's); one
    learning rate and weight decay for filter and MLP, unless the filter has its own, as tuned by the authors.

    Attributes:
        orders: K.
        tau: weight of the homophily part P^k x.
        hidden: width of the hidden layers.
        layers: number of layers of the MLP.
        dropout: probability of zeroing a hidden unit.
        input_dropout: probability of zeroing an entry of Z.
        basis_dropout: probability of zeroing an entry of a b_k.
        basis: ``exact`` or ``code``.
        homophily: h of each ``client``'s own edges, or of the edges of all clients (``global``).
        default_homophily: h if no edge joins two training nodes.
        per_feature: coefficients ``[K + 1, F]`` instead of ``[K + 1]``.
        filter_lr, filter_weight_decay: rates of the coefficients; null takes the top-level keys, as for the MLP.
    """

    orders: int
    tau: float
    hidden: int
    layers: int
    dropout: float
    input_dropout: float
    basis_dropout: float
    basis: Literal["exact", "code"]
    homophily: Literal["client", "global"]
    default_homophily: float
    per_feature: bool
    filter_lr: float | None
    filter_weight_decay: float | None

    def __post_init__(self) -> None:
        if self.orders < 0 or self.layers < 1 or self.hidden < 1:
            raise ValueError(f"orders={self.orders}, layers={self.layers}, hidden={self.hidden}: at least 0, 1 and 1")
        if not 0 <= self.tau <= 1:
            raise ValueError(f"tau={self.tau}: must be between 0 and 1")
        if not 0 <= self.default_homophily <= 1:
            raise ValueError(f"default_homophily={self.default_homophily}: must be between 0 and 1")
        if self.filter_lr is not None and not self.filter_lr > 0:
            raise ValueError(f"filter_lr={self.filter_lr}: must be above 0")
        if self.filter_weight_decay is not None and not self.filter_weight_decay >= 0:
            raise ValueError(f"filter_weight_decay={self.filter_weight_decay}: must be at least 0")

    @cached_property
    def build(self) -> UniBasis:
        return UniBasis(self.orders, self.tau, self.basis == "code", self.homophily == "global", self.default_homophily)

    @property
    def scalar(self) -> bool:
        return not self.per_feature

    @property
    def rates(self) -> Mapping[str, Rates]:
        own = Rates(self.filter_lr, self.filter_weight_decay)
        return {} if own == Rates() else {self.coefficients: own}

    @property
    def drops(self) -> bool:
        return bool(self.dropout or self.input_dropout or self.basis_dropout)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        widths = [num_features, *[self.hidden] * (self.layers - 1), num_classes]
        shapes = {f"mlp{i}.weight": shape for i, shape in enumerate(zip(widths, widths[1:], strict=False))}
        return ParameterLayout(shapes | {self.coefficients: self._filter_shape(num_features)}, inputs=("mlp0.weight",))

    def _filter_shape(self, num_features: int) -> tuple[int, ...]:
        return (self.orders + 1, num_features) if self.per_feature else (self.orders + 1,)

    def widest(self, num_features: int, num_classes: int) -> int:
        return max(super().widest(num_features, num_classes), num_features // 2)  # Z; backward reads only rows of training nodes

    def reads_shared_matrices(self, nodes: int, num_features: int, num_classes: int) -> bool:
        if self.per_feature or self.input_dropout or self.basis_dropout:  # every replica then reads the basis separately
            return False
        layout = self.layout(num_features, num_classes)
        return (self.orders + 1) * nodes * num_features > layout.size + nodes * self.widest(num_features, num_classes)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return weights uniform within 1/sqrt(out) and coefficients 1/(K + 1), as in the authors' code."""
        shapes = dict(layout.shapes)
        equal = torch.full(shapes.pop(self.coefficients), 1 / (self.orders + 1), dtype=torch.float64)
        return {name: uniform(shape, shape[-1], generator) for name, shape in shapes.items()} | {self.coefficients: equal}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        weight = _residual(parameters["mlp0.weight"])
        if self.per_feature:
            return linear(combined(batch, self.build, parameters[self.coefficients]), weight)
        return filtered(batch, self.build, parameters[self.coefficients], weight)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        out = first
        if dropout is not no_dropout and (self.input_dropout or self.basis_dropout):
            summed = combined(batch, self.build, parameters[self.coefficients], dropout, self.basis_dropout)
            out = linear(dropout(summed, self.input_dropout), _residual(parameters["mlp0.weight"]))
        hidden = out
        for i in range(1, self.layers):
            hidden = dropout(torch.relu(out))
            out = linear(hidden, _residual(parameters[f"mlp{i}.weight"]))
        return Output(hidden, out)

    def label_basis(self, batch: Batch, labels: Tensor) -> Tensor:
        return signal_basis(batch, self.build, labels)

    def mean_responses(self, batch: Batch) -> Tensor:
        blocks = batch.derived(self.build)
        # Client by client, since a sum in another dtype copies its input.
        sums = torch.stack([values.sum(1, dtype=batch.dtype) for values in blocks.values])[blocks.rows]
        return sums / batch.valid.sum(1).clamp(min=1)[:, None, None]


def _residual(weight: Tensor) -> Tensor:
    """Return the weight of a layer, plus the identity if input and output have the same width (a residual connection)."""
    if weight.shape[1] != weight.shape[2]:
        return weight
    return weight + torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
