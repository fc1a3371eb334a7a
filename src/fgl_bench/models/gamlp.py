"""Graph attention multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import Hops, identity, loops_operator
from fgl_bench.models._decoupled import Columns, Decoupled, Perceptron, xavier


@dataclass
class GAMLP(Decoupled):
    """Zhang et al., KDD 2022, with jumping-knowledge attention as in FedGTA's code, then a perceptron.

    With hops ``Z_l = S^l X``: ``s_l = sigmoid(w . [Z_0 | ... | Z_K | Z_l] + b)`` for every node, ``a = softmax over l of s``,
    ``Z = sum_l a_l Z_l``. Since Z is first multiplied by a weight W, and attention is a scalar per node and hop,
    ``Z W = sum_l a_l (Z_l W)``: all products are as narrow as W.

    ``attention.weight [F, K+2]`` holds w in columns, first those for the references Z_0 to Z_K. Resolution: each score belongs
    to its own node and hop. (FedGTA's code reshapes scores in an order that mixes nodes and hops.)

    Attributes:
        hops: K.
        hidden: width of the hidden layers.
        layers: number of linear layers.
        dropout: probability of zeroing a hidden unit.
    """

    auxiliary: ClassVar[tuple[str, ...]] = ("attention",)

    hops: int
    hidden: int
    layers: int
    dropout: float

    def hop_matrices(self) -> Hops:
        return Hops(identity(self.hops))

    def _width(self, num_classes: int) -> int:
        return self.hidden if self.layers > 1 else num_classes

    def columns(self, num_classes: int) -> Columns:
        width, count = self._width(num_classes), self.hops + 1
        return Columns(width + count + 1, self.hops * (width + 2), count * (width + 2))

    def perceptron(self, num_features: int, num_classes: int) -> Perceptron:
        return Perceptron((num_features, *[self.hidden] * (self.layers - 1), num_classes))

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        attention = {"attention.weight": (num_features, self.hops + 2), "attention.bias": (1,)}
        shapes = {**self.perceptron(num_features, num_classes).shapes(), **attention}
        return ParameterLayout(shapes, inputs=("linear0.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        features, columns = layout.shapes["attention.weight"]
        return xavier(layout, generator, {"attention.weight": (features * columns, 1)})

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        products, own, reference = (self._precomputed if self.uses_precomputed(batch) else self._lazy)(parameters, batch)
        weights = attention(own, reference + parameters["attention.bias"][:, None])
        return sum(weights[..., hop : hop + 1] * product for hop, product in enumerate(products)) + parameters["linear0.bias"][:, None]

    def _precomputed(self, parameters: Parameters, batch: Batch) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return ``Z_l W [k, n, h]`` for every l, the score of each node and hop ``[k, n, K+1]`` and of the reference ``[k, n, 1]``."""
        weight, (reference, own) = parameters["linear0.weight"], parameters["attention.weight"].split((self.hops + 1, 1), 2)
        shared = torch.cat([weight, own], 2)[:, None].expand(-1, self.hops + 1, -1, -1)
        products = batch.derived(self.hop_matrices()) @ torch.cat([shared, reference.transpose(1, 2)[..., None]], 3)
        return list(products[..., :-2].unbind(1)), products[..., -2].transpose(1, 2), products[..., -1].sum(1)[..., None]

    def _lazy(self, parameters: Parameters, batch: Batch) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return the same by lazy propagation. The reference ``sum_l S^l X w_l`` is summed from the last hop, in the same products."""
        x = batch.features @ parameters["linear0.weight"]
        *near, last, own = (batch.features @ parameters["attention.weight"]).split(1, 2)
        products, scores = [x], [own]
        operator = batch.operator(loops_operator(0.5)) if self.hops else None
        for reference in reversed(near):
            assert operator is not None
            x, own, last = (operator @ torch.cat([x, own, last], 2)).split((x.shape[2], 1, 1), 2)
            products.append(x)
            scores.append(own)
            last = last + reference
        return products, torch.cat(scores, 2), last

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        return self.perceptron(0, 0)(parameters, first, dropout, since=1)


def attention(own: Tensor, reference: Tensor) -> Tensor:
    """Return the weights of the hops ``[k, n, K+1]``, given each hop's score and the node's ``reference [k, n, 1]``."""
    weights = torch.softmax(torch.sigmoid(own + reference), -1)
    if weights.requires_grad:
        # Softmax ignores a common part of its gradient. Subtracting it first leaves an exact zero where all hops are equal (a node
        # without neighbors), instead of a rounding error that Adam would turn into a step.
        weights.register_hook(lambda gradient: gradient - gradient[..., :1])
    return weights
