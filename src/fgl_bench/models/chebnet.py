"""ChebNet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, plain_operator
from fgl_bench.engine.layout import ParameterLayout, glorot
from fgl_bench.engine.linear import linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import chebyshev_filter, chebyshev_terms, mean_terms
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.models.base import Spectral


@dataclass
class ChebNet(Spectral):
    """Defferrard et al., 2016, as PyG's ``ChebConv``: ``H' = dropout(ReLU(sum_{k<K} T_k(L - I) H W_k + b))``, the last layer plain.

    L - I = -P is the scaled Laplacian for the largest eigenvalue 2. A layer's matrices are concatenated to ``[in, K out]``, W_0
    first. Features are multiplied once, and Clenshaw's recurrence propagates K - 1 times at the width of the result, so sparse
    features stay sparse and nothing is precomputed.

    ``form=filter`` is one filter with a scalar per order, ``Z = sum_{k<K} theta_k T_k(L - I) X``, followed by an MLP.

    Attributes:
        orders: K, the number of terms: orders 0 to K - 1.
        hidden: width of the hidden layers.
        layers: convolutions, or layers of the MLP.
        dropout: probability of zeroing a hidden unit.
        form: ``layers`` or ``filter``.
    """

    orders: int
    hidden: int
    layers: int
    dropout: float
    form: Literal["layers", "filter"]

    def __post_init__(self) -> None:
        if self.orders < 1 or self.layers < 1 or self.hidden < 1:
            raise ValueError(f"orders={self.orders}, layers={self.layers}, hidden={self.hidden}: must be at least 1")

    @property
    def scalar(self) -> bool:
        return self.form == "filter"

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        widths, times = [num_features, *[self.hidden] * (self.layers - 1), num_classes], 1 if self.scalar else self.orders
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
            shapes[f"conv{i}.weight"], shapes[f"conv{i}.bias"] = (wide, times * narrow), (narrow,)
        if self.scalar:
            shapes[self.coefficients] = (self.orders,)
        return ParameterLayout(shapes, inputs=("conv0.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return Glorot-uniform W_k as in PyG, zero biases and equal coefficients."""
        parameters = {}
        for name, shape in layout.shapes.items():
            if name == self.coefficients:
                parameters[name] = torch.full(shape, 1 / self.orders, dtype=torch.float64)
            elif len(shape) > 1:
                times = 1 if self.scalar else self.orders
                parameters[name] = torch.cat([glorot((shape[0], shape[1] // times), generator) for _ in range(times)], 1)
            else:
                parameters[name] = torch.zeros(shape, dtype=torch.float64)
        return parameters

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        product, matrix = batch.features @ parameters["conv0.weight"], batch.operator(plain_operator)
        if self.scalar:
            product = chebyshev_filter(matrix, parameters[self.coefficients] * self._signs(product), product)
        else:
            product = _clenshaw(matrix, product, self.orders)
        return product + parameters["conv0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        hidden, out = first, first
        for i in range(1, self.layers):
            hidden = dropout(torch.relu(out))
            out = linear(hidden, parameters[f"conv{i}.weight"])
            out = out if self.scalar else _clenshaw(batch.operator(plain_operator), out, self.orders)
            out = out + parameters[f"conv{i}.bias"][:, None]
        return Output(hidden, out)

    def _signs(self, like: Tensor) -> Tensor:
        """Return the signs of ``T_k(-P) = (-1)^k T_k(P)``."""
        return (-1.0) ** torch.arange(self.orders, device=like.device, dtype=like.dtype)

    def label_basis(self, batch: Batch, labels: Tensor) -> Tensor:
        return chebyshev_terms(batch.operator(plain_operator), labels, self.orders) * self._signs(labels)[:, None, None]

    def mean_responses(self, batch: Batch) -> Tensor:
        means = mean_terms(batch, self.orders)
        return means * self._signs(means)[:, None]


def _clenshaw(matrix: BlockSparse, product: Tensor, orders: int) -> Tensor:
    """Return ``sum_k T_k(-P) X_k`` from the concatenated X_k, ``[k, n, K h]`` to ``[k, n, h]``."""
    parts = product.chunk(orders, -1)
    if orders == 1:
        return product
    later, now = None, parts[-1]
    for part in reversed(parts[1:-1]):
        step = part - 2 * (matrix @ now.contiguous())
        later, now = now, step if later is None else step - later
    out = parts[0] - matrix @ now.contiguous()
    return out if later is None else out - later
