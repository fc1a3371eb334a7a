"""A variational graph autoencoder whose encoder is a backbone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.dropout import DropoutFunction, no_dropout
from fgl_bench.engine.layout import ParameterLayout, glorot
from fgl_bench.engine.linear import affine, linear, taken
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.random_numbers import uniform
from fgl_bench.models.base import Around, Backbone, Spectral

OWN = ("label.weight", "posterior.weight", "posterior.bias")
LARGEST = 20.0  # bound of log variances


class Posterior(NamedTuple):
    """Attributes: mean, log_variance ``[k, n, d]`` of every node's latent Gaussian."""

    mean: Tensor
    log_variance: Tensor


class Encoded(Output):
    """A backbone's output, with a lazy posterior.

    Attributes: hidden ``[k, n, h]``; logits ``[k, n, Y]``; posterior, a function of the flag ``detached``.
    """

    posterior: Callable[..., Posterior]

    def __new__(cls, output: Output, posterior: Callable[..., Posterior]) -> Encoded:
        encoded = super().__new__(cls, *output)
        encoded.posterior = posterior
        return encoded


class LabelAware(Around):
    """VGAE (Kipf & Welling, 2016) around a backbone: classifier and encoder share the trunk but not inputs and heads.

    The encoder's input is ``[X | Y]`` with one-hot labels of training nodes and zero rows for all others. The backbone's first layer
    has Y additional input columns (``label.weight``), filtered by the backbone's scalar filter, or else by GCN's operator. They are
    zero for the classifier, so predictions never depend on labels. Mean and log variance are linear in the representation before
    the last layer (for BernNet, before the filter). The encoder has no dropout.

    Attributes:
        latent: d, the latent width.
    """

    needs_neighbors = True  # the decoder predicts edges

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
        """Return the widths of the backbone's first layer and of its representation, measured on a graph of two nodes."""
        mask = np.array([True, False])
        edges = np.array([[0, 1], [1, 0]])
        client = ClientGraph(np.arange(2), np.zeros((2, num_features)), edges, np.zeros(2, np.int64), mask, ~mask, ~mask)
        batch = Batch([client], torch.float32, "cpu")
        parameters = layout.views(torch.zeros(1, layout.size))
        first = self.inner.first(parameters, batch)
        return first.shape[-1], self.inner.forward(parameters, batch, first, no_dropout).hidden.shape[-1]

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Initialize the backbone first, so that it starts as without the encoder."""
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
        """Return q(z | X, Y) of every node; ``first`` is the result of :meth:`first`. ``detached``: no gradients to the backbone."""
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
    """Return the posterior from the output of a :class:`LabelAware`."""
    assert isinstance(output, Encoded)
    return output.posterior(detached=detached)


def scalar(network: Backbone) -> TypeGuard[Spectral]:
    """Return True if the network's filter has one scalar per order, so that it can filter labels too."""
    return isinstance(network, Spectral) and network.scalar


def training_labels(batch: Batch, classes: int) -> Tensor:
    """Return one-hot labels of the training nodes, and zero rows for all others, ``[k, n, Y]``."""
    return torch.nn.functional.one_hot(batch.labels, classes).to(batch.dtype) * batch.train[..., None]


class UndirectedEdges(NamedTuple):
    """The undirected edges of k replicas, each once.

    Attributes:
        ends: ``[k, m, 2]`` int64 nodes u < v, in order; n in padding.
        count: ``[k]`` int64 edges.
        nodes: ``[k]`` int64, number of real nodes.
        there: ``[k, n]`` int64, the real nodes in order, then padding.
    """

    ends: Tensor
    count: Tensor  # type: ignore[assignment]  # it hides tuple.count
    nodes: Tensor
    there: Tensor

    @classmethod
    def of(cls, batch: Batch) -> UndirectedEdges:
        each = [client.edges[:, client.edges[0] < client.edges[1]] for client in batch.clients]
        ends = np.full((batch.size, max(1, *(edges.shape[1] for edges in each)), 2), batch.nodes, dtype=np.int64)
        for row, edges in zip(ends, each, strict=True):
            row[: edges.shape[1]] = edges.T
        count = torch.tensor([edges.shape[1] for edges in each], device=batch.device)
        there = (~batch.valid).to(torch.uint8).argsort(dim=1, stable=True)
        return cls(torch.from_numpy(ends).to(batch.device), count, batch.valid.sum(1), there)

    def select(self, rows: Tensor) -> UndirectedEdges:
        return UndirectedEdges(*(part[rows] for part in self))


def drawn_pairs(edges: UndirectedEdges, most: int, key: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw edges and the same number of non-edges, at most ``most`` of each; a client with more edges draws with replacement.

    Non-edges are pairs of different real nodes; the few pairs that are edges are dropped, not redrawn.

    Args:
        key: ``[k]`` int64; draws depend only on the key and the replica's own edges.

    Returns:
        Pairs ``[k, m, 2]`` and their mask ``[k, m]``, of edges and of non-edges.
    """
    (k, longest, _), nodes = edges.ends.shape, edges.nodes[:, None, None]
    size = min(longest, most)
    draws = uniform(key, size, 3)
    position = torch.arange(size, device=key.device).expand(k, -1)
    count = edges.count[:, None]
    chosen = torch.where(count > most, (draws[..., 0] * count).long(), position)
    real = position < count
    positive = torch.take_along_dim(edges.ends, chosen[..., None], 1)
    drawn = (draws[..., 1:] * nodes).long().sort(-1).values
    negative = edges.there.gather(1, drawn.flatten(1)).view_as(drawn)
    return positive, real, negative, real & (negative[..., 0] != negative[..., 1]) & ~_among(edges.ends, negative)


def _among(ends: Tensor, pairs: Tensor) -> Tensor:
    """Return True for ``pairs [k, m, 2]`` that occur in the sorted ``ends [k, e, 2]``."""
    known, wanted = (x[..., 0] * 2**31 + x[..., 1] for x in (ends, pairs))
    index = torch.searchsorted(known, wanted).clamp(max=known.shape[1] - 1)
    return known.gather(1, index) == wanted


def reconstruction(z: Tensor, edges: UndirectedEdges, most: int, key: Tensor) -> Tensor:
    """Return the mean cross-entropy of ``sigmoid(z_u . z_v)`` over edges plus the mean over drawn non-edges, ``[k]``.

    0 for a replica without edges.
    """
    k, n, _ = z.shape
    positive, real, negative, unreal = drawn_pairs(edges, most, key)
    start = torch.arange(k, device=z.device)[:, None] * n
    flat, losses = z.flatten(0, 1), []
    for pairs, counts, sign in ((positive, real, -1.0), (negative, unreal, 1.0)):
        u, v = ((pairs[..., end].clamp(max=n - 1) + start).flatten() for end in (0, 1))
        inner = (taken(flat, u) * taken(flat, v)).sum(-1).view(k, -1)
        counts = counts.to(z.dtype)
        losses.append((F.softplus(sign * inner) * counts).sum(1) / counts.sum(1).clamp(min=1))
    return losses[0] + losses[1]
