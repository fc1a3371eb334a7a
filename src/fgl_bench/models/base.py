"""What a backbone on stacked layers is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout, glorot

Parameters = Mapping[str, Tensor]


class Output(NamedTuple):
    """Attributes: hidden ``[k, n, h]``, the representation before the last layer; logits ``[k, n, Y]``."""

    hidden: Tensor
    logits: Tensor


@dataclass
class Backbone:
    """A graph neural network for all replicas at once; a subclass's fields are its hyper-parameters.

    Parameters come as ``[k, *shape]`` stacks; the graph of replica i only ever meets the parameters of replica i.
    """

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        """Names and shapes of the parameters."""
        raise NotImplementedError  # abstract

    def initialise(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Unstacked initial parameters (float64): Glorot-uniform matrices, zero biases, as PyG's convolutions have them."""
        return {
            name: glorot(shape, generator) if len(shape) > 1 else torch.zeros(shape, dtype=torch.float64)
            for name, shape in layout.shapes.items()
        }

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        """The part of the forward pass before any dropout, ``[k, n, h]``.

        It is the same in training and evaluation mode, so evaluating a received model and the next training step share it.
        """
        raise NotImplementedError  # abstract

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        """The rest of the forward pass, from what :meth:`first` returned."""
        raise NotImplementedError  # abstract
