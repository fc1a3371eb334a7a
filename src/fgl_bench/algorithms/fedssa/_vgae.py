"""A variational graph autoencoder whose encoder is a backbone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.dropout import DropoutFunction, no_dropout
from fgl_bench.engine.layout import ParameterLayout, glorot
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models.base import Around, Backbone, Spectral

OWN = ("label.weight", "posterior.weight", "posterior.bias")
LARGEST = 20.0  # of log variances


class Posterior(NamedTuple):
    """Attributes: mean, log_variance ``[k, n, d]`` of every node's latent Gaussian."""

    mean: Tensor
    log_variance: Tensor


class Encoded(Output):
    """A backbone's output, and the way to the posterior, which costs nothing where nobody asks.

    Attributes: hidden ``[k, n, h]``; logits ``[k, n, Y]``; posterior, a function with the flag ``detached``.
    """

    posterior: Callable[..., Posterior]

    def __new__(cls, output: Output, posterior: Callable[..., Posterior]) -> Encoded:
        made = super().__new__(cls, *output)
        made.posterior = posterior
        return made


class LabelAware(Around):
    """VGAE (Kipf & Welling, 2016) around a backbone: the trunk is shared, classification and the encoder differ in their inputs and heads.

    The encoder's input is ``[X | Y]`` with one-hot labels of training nodes and zero rows for all others: the backbone's first layer
    has Y more input columns (``label.weight``), which go through a backbone's scalar filter, else through GCN's operator. The
    classifier sees those columns as zero, so that no label is an input of a prediction. Mean and log variance are linear in the
    representation before the last layer (of BernNet, before the filter); the encoder draws no dropout.

    Attributes:
        latent: d.
    """

    needs_neighbors = True  # its decoder predicts edges

    _labels: Tensor  # once attached

    def __init__(self, inner: Backbone, latent: int):
        super().__init__(inner)
        self.latent = latent

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        layout = self.inner.layout(num_features, num_classes)
        first, hidden = self._widths(layout, num_features)
        own = {"label.weight": (num_classes, first), "posterior.weight": (hidden, 2 * self.latent), "posterior.bias": (2 * self.latent,)}
        return ParameterLayout(layout.shapes | own, layout.inputs)

    def _widths(self, layout: ParameterLayout, num_features: int) -> tuple[int, int]:
        """Widths of the backbone's first layer and of its representation, seen on a graph of two nodes."""
        mask = np.array([True, False])
        edges = np.array([[0, 1], [1, 0]])
        client = ClientGraph(np.arange(2), np.zeros((2, num_features)), edges, np.zeros(2, np.int64), mask, ~mask, ~mask)
        batch = Batch([client], torch.float32, "cpu")
        parameters = layout.views(torch.zeros(1, layout.size))
        first = self.inner.first(parameters, batch)
        return first.shape[-1], self.inner.forward(parameters, batch, first, no_dropout).hidden.shape[-1]

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """The backbone's own first, so that it starts as it would alone."""
        inner = ParameterLayout({name: shape for name, shape in layout.shapes.items() if name not in OWN}, layout.inputs)
        parameters = self.inner.init_parameters(inner, generator)
        for name in OWN:
            shape = layout.shapes[name]
            parameters[name] = glorot(shape, generator) if len(shape) > 1 else torch.zeros(shape, dtype=torch.float64)
        return parameters

    def attach(self, batch: Batch, classes: int) -> None:
        """Propagate the training labels of all replicas, once: ``[B, J, n, Y]``."""
        labels = training_labels(batch, classes)
        self._labels = self.inner.label_basis(batch, labels) if scalar(self.inner) else (batch.operator(gcn_operator) @ labels)[:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Encoded:
        return Encoded(self.inner.forward(parameters, batch, first, dropout), partial(self.posterior, parameters, batch, first))

    def posterior(self, parameters: Parameters, batch: Batch, first: Tensor, detached: bool = False) -> Posterior:
        """q(z | X, Y) of every node; ``first`` is :meth:`first`'s. ``detached``: without gradients to the backbone's parameters."""
        if detached:
            parameters = {name: value if name in OWN else value.detach() for name, value in parameters.items()}
            first = first.detach()
        basis = self._labels if batch.size == len(self._labels) else self._labels[batch.replicas]
        if scalar(self.inner):
            labels = torch.einsum("kj,kjny->kny", self.inner.weights(parameters), basis)
        else:
            labels = basis[:, 0]
        first = first + linear(labels, parameters["label.weight"])
        hidden = self.inner.forward(parameters, batch, first, no_dropout).hidden
        mean, log_variance = affine(hidden, parameters, "posterior").chunk(2, -1)
        return Posterior(mean, log_variance.clamp(max=LARGEST))


def posterior_of(output: Output, detached: bool = False) -> Posterior:
    """Of a :class:`LabelAware`'s output."""
    assert isinstance(output, Encoded)
    return output.posterior(detached=detached)


def scalar(network: Backbone) -> TypeGuard[Spectral]:
    """Whether the network filters with one scalar for every order, which filters labels as well as features."""
    return isinstance(network, Spectral) and network.scalar


def training_labels(batch: Batch, classes: int) -> Tensor:
    """One-hot labels of the training nodes, zero rows for all others, ``[k, n, Y]``."""
    return torch.nn.functional.one_hot(batch.labels, classes).to(batch.dtype) * batch.train[..., None]
