"""BernNet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, plain_operator
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import chebyshev_filter, chebyshev_terms, mean_terms
from fgl_bench.models.base import Spectral


def bernstein_in_chebyshev(orders: int) -> np.ndarray:
    """Return ``[K + 1, K + 1]``; row k holds the Chebyshev coefficients in p of ``2^-K binom(K, k) (1 + p)^(K - k) (1 - p)^k``.

    For eigenvalues p of P these are the Bernstein polynomials of L = I - P, so one recurrence of K products gives all of them.
    """
    rows = []
    for k in range(orders + 1):
        factors = np.polynomial.Polynomial([1.0, 1.0]) ** (orders - k) * np.polynomial.Polynomial([1.0, -1.0]) ** k
        rows.append(np.polynomial.chebyshev.poly2cheb(factors.coef) * comb(orders, k) / 2.0**orders)
    return np.stack(rows)


@dataclass
class BernNet(Spectral):
    """He et al., NeurIPS 2021: an MLP, then ``sum_k ReLU(theta_k) 2^-K binom(K, k) (2I - L)^(K - k) L^k`` on its outputs.

    The MLP has one hidden layer, with dropout after it and (``filter_dropout``) before the filter. The Bernstein polynomials
    are expanded in Chebyshev polynomials of P once. A filter then takes K sparse products as wide as the classes, instead of
    K + K (K + 1) / 2 by the definition. A negative coefficient gets no gradient, as in the authors' code. All coefficients start
    at 1, where the filter is the identity.

    Resolutions: no dropout on the input features (the authors have it); one learning rate and weight decay for all parameters
    (the authors use a separate learning rate and no decay for the coefficients).

    Attributes:
        orders: K.
        hidden: width of the hidden layer.
        dropout: probability of zeroing a hidden unit.
        filter_dropout: probability of zeroing an entry of the filter's input.
    """

    orders: int
    hidden: int
    dropout: float
    filter_dropout: float

    def __post_init__(self) -> None:
        if self.orders < 0 or self.hidden < 1:
            raise ValueError(f"orders={self.orders}, hidden={self.hidden}: at least 0 and 1")

    @property
    def drops(self) -> bool:
        return bool(self.dropout or self.filter_dropout)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        shapes = {
            "lin0.weight": (num_features, self.hidden), "lin0.bias": (self.hidden,), "lin1.weight": (self.hidden, num_classes),
            "lin1.bias": (num_classes,), self.coefficients: (self.orders + 1,),
        }  # fmt: skip
        return ParameterLayout(shapes, inputs=("lin0.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return PyTorch's initialization of linear layers, and coefficients 1."""
        parameters = {self.coefficients: torch.ones(self.orders + 1, dtype=torch.float64)}
        for name in layout.shapes:
            if name != self.coefficients:
                parameters[name] = like_linear(layout, name, generator)
        return parameters

    def weights(self, parameters: Parameters) -> Tensor:
        return torch.relu(parameters[self.coefficients])

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return batch.features @ parameters["lin0.weight"] + parameters["lin0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        hidden = dropout(torch.relu(first))
        scores = affine(hidden, parameters, "lin1")
        if self.filter_dropout:
            scores = dropout(scores, self.filter_dropout)
        coefficients = self.weights(parameters) @ self._expansion(scores)
        return Output(hidden, chebyshev_filter(batch.operator(plain_operator), coefficients, scores))

    def _expansion(self, like: Tensor) -> Tensor:
        return _expansion(self.orders, like.device, like.dtype)

    def label_basis(self, batch: Batch, labels: Tensor) -> Tensor:
        terms = chebyshev_terms(batch.operator(plain_operator), labels, self.orders + 1)
        return torch.einsum("jt,ktny->kjny", self._expansion(labels), terms)

    def mean_responses(self, batch: Batch) -> Tensor:
        means = mean_terms(batch, self.orders + 1)
        return self._expansion(means) @ means


@lru_cache(maxsize=16)
def _expansion(orders: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(bernstein_in_chebyshev(orders)).to(device, dtype)
