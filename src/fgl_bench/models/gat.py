"""Graph attention network, in both versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.attention import additive_scores, attend, per_edge
from fgl_bench.engine.batch import Batch, looped_operator
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.kernels.dynamic_scores import dynamic_scores
from fgl_bench.engine.layout import ParameterLayout, glorot, like_linear, uniform
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.models.base import Backbone, hidden_widths

SLOPE = 0.2  # of the LeakyReLU inside the attention


@dataclass
class GAT(Backbone):
    """Veličković et al., ICLR 2018, as in OpenFGL: ``h'_v = sum over u in N(v) and v of alpha_vu W h_u + b``.

    ``alpha_vu`` is the softmax over u of ``LeakyReLU(a . [W h_v | W h_u])`` (``version=v1``) or of ``a . LeakyReLU(W_r h_v +
    W_l h_u)``, with ``W = W_l`` and PyG's biases inside (``version=v2``; Brody, Alon & Yahav, ICLR 2022). Hidden layers
    concatenate their heads; the last convolution averages its ``output_heads``. Activation and dropout follow every hidden layer.
    The heads' matrices are concatenated, and in v2 also W_l and W_r (W_l first), so features are multiplied once.

    Attributes:
        hidden: width of the hidden layers over all heads, or a list of widths.
        layers: number of convolutions.
        dropout: probability of zeroing a hidden unit.
        version: ``v1`` or ``v2``.
        heads, output_heads: number of heads of hidden convolutions, and of a convolution that gives the logits.
        act: ``relu`` or ``elu`` (as in the original).
        attn_dropout: probability of zeroing an edge's attention.
        head: the logits come from a convolution (``conv``), or ``layers`` hidden ones are followed by a ``linear`` layer.
    """

    hidden: int | list[int]
    layers: int
    dropout: float
    version: Literal["v1", "v2"]
    heads: int
    output_heads: int
    act: Literal["relu", "elu"]
    attn_dropout: float
    head: Literal["conv", "linear"]

    def __post_init__(self) -> None:
        self._widths = hidden_widths(self.hidden, self.layers, self.head)
        if self.heads < 1 or self.output_heads < 1:
            raise ValueError(f"heads={self.heads}, output_heads={self.output_heads}: must be at least 1")
        for width in self._widths:
            if width % self.heads:
                raise ValueError(f"hidden={self.hidden}: must be a multiple of heads={self.heads}, which share it")
        if not 0 <= self.attn_dropout <= 1:
            raise ValueError(f"attn_dropout={self.attn_dropout}: must be between 0 and 1")

    @property
    def drops(self) -> bool:
        return bool(self.dropout or self.attn_dropout)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        conv = [(self.heads, width // self.heads, width) for width in self._widths]
        if self.head == "conv":
            conv.append((self.output_heads, num_classes, num_classes))
        shapes: dict[str, tuple[int, ...]] = {}
        wide = num_features
        for i, (heads, each, narrow) in enumerate(conv):
            shapes |= {f"conv{i}.{name}": shape for name, shape in VERSIONS[self.version].shapes(wide, heads, each).items()}
            shapes[f"conv{i}.bias"] = (narrow,)
            wide = narrow
        if self.head == "linear":
            shapes |= {"head.weight": (wide, num_classes), "head.bias": (num_classes,)}
        return ParameterLayout(shapes, inputs=("conv0.weight",))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return Glorot-uniform matrices and attention vectors and zero biases; v2's inner biases and a linear head as in PyTorch."""
        parameters = super().init_parameters(layout, generator)
        for name, shape in layout.shapes.items():
            if name.endswith(".shift"):
                wide, double = layout.shapes[name.replace("shift", "weight")]
                halves = [glorot((wide, double // 2), generator) for _ in range(2)]
                parameters[name.replace("shift", "weight")] = torch.cat(halves, 1)
                parameters[name] = uniform(shape, wide, generator)
            elif name.startswith("head."):
                parameters[name] = like_linear(layout, name, generator)
        return parameters

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        product = batch.features @ parameters["conv0.weight"]
        return product if self.attn_dropout else self._convolve(0, product, parameters, batch, no_dropout)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[..., Tensor]) -> Output:
        out = self._convolve(0, first, parameters, batch, dropout) if self.attn_dropout else first
        hidden, act = out, ACTS[self.act]
        for i in range(1, self.layers):
            hidden = dropout(act(out))
            out = self._convolve(i, linear(hidden, parameters[f"conv{i}.weight"]), parameters, batch, dropout)
        if self.head == "conv":
            return Output(hidden, out)
        hidden = dropout(act(out))
        return Output(hidden, affine(hidden, parameters, "head"))

    def _convolve(self, layer: int, product: Tensor, parameters: Parameters, batch: Batch, dropout: Callable[..., Tensor]) -> Tensor:
        """Apply a layer to ``product [k, n, *]``, the features times the layer's matrix; returns ``[k, n, h]``."""
        last, graph = layer == len(self._widths), batch.operator(looped_operator)
        own = {name.partition(".")[2]: value for name, value in parameters.items() if name.startswith(f"conv{layer}.")}
        heads, keep = self.output_heads if last else self.heads, None
        if self.attn_dropout and dropout is not no_dropout:
            keep = per_edge(graph, heads, partial(dropout, rate=self.attn_dropout))
        values, scores = VERSIONS[self.version].scores(product, own, graph)
        out = attend(graph, values, scores, keep)
        if last and heads > 1:
            out = out.unflatten(2, (heads, -1)).mean(2)
        return out + own["bias"][:, None]


class Version(NamedTuple):
    """Attributes: shapes, of a convolution's parameters by (in, heads, width per head); scores, values and scores from the product."""

    shapes: Callable[[int, int, int], dict[str, tuple[int, ...]]]
    scores: Callable[[Tensor, Parameters, BlockSparse], tuple[Tensor, Tensor]]


def _v1_shapes(wide: int, heads: int, each: int) -> dict[str, tuple[int, ...]]:
    return {"weight": (wide, heads * each), "source": (heads, each), "target": (heads, each)}


def _v2_shapes(wide: int, heads: int, each: int) -> dict[str, tuple[int, ...]]:
    return {"weight": (wide, 2 * heads * each), "shift": (2 * heads * each,), "attention": (heads, each)}


def _v1_scores(product: Tensor, own: Parameters, graph: BlockSparse) -> tuple[Tensor, Tensor]:
    vectors = torch.stack([own["source"], own["target"]], -1)
    each = torch.einsum("knhd,khde->knhe", product.unflatten(2, vectors.shape[1:3]), vectors)
    return product, additive_scores(graph, each[..., 0], each[..., 1], SLOPE)


def _v2_scores(product: Tensor, own: Parameters, graph: BlockSparse) -> tuple[Tensor, Tensor]:
    near, self_ = (product + own["shift"][:, None]).chunk(2, -1)
    return near, dynamic_scores(graph, near, self_, own["attention"], SLOPE)


VERSIONS = {"v1": Version(_v1_shapes, _v1_scores), "v2": Version(_v2_shapes, _v2_scores)}
ACTS = {"relu": torch.relu, "elu": F.elu}
