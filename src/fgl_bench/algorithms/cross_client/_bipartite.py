"""Backbones one convolution at a time, from the representations of some sources to those of some targets.

What message passing over the edges between clients needs: sources that are not nodes of the replica, edges that are masked. A
backbone is described by a :class:`Convolutions`; those of ``CONVOLUTIONS`` can be used. An edge from a target to itself (a loop) is
in every :class:`~fgl_bench.algorithms.cross_client._halo.Level`; attention uses it, the mean over neighbours does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._halo import Level, Plan
from fgl_bench.engine.attention import additive_scores, attend, dynamic_scores
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.network import Parameters
from fgl_bench.errors import Unsuited
from fgl_bench.models.base import Backbone
from fgl_bench.models.gat import ACTS, GAT, SLOPE
from fgl_bench.models.graphsage import GraphSAGE

Product = Callable[[Tensor], Tensor]
Keep = Callable[[int, Level, "Messages"], Tensor]


class Messages(NamedTuple):
    """One convolution before its neighbours are summed.

    Attributes:
        values: ``[k, c, h]``, what every source sends.
        own: ``[k, r, h]``, what every target adds of itself besides its loop.
        scores: ``[H, E]`` attention logits of the edges, None where the backbone has no attention.
    """

    values: Tensor
    own: Tensor | None
    scores: Tensor | None


class Convolutions:
    """A backbone's layers.

    Attributes:
        depth: number of convolutions.
        widths: of the representations between them (the rows that clients may exchange).
        attends: whether edges have scores.
    """

    attends = False

    def __init__(self, model: Backbone):
        self.model, self.depth = model, model.layers
        self.widths = list(model._widths)[: model.layers - 1] if model.head == "conv" else list(model._widths)[:-1]

    def messages(self, number: int, parameters: Parameters, product: Product, mine: Product | None, level: Level) -> Messages:
        """What convolution ``number`` sends.

        Args:
            product, mine: a weight ``[k, a, b]`` to the products of the sources ``[k, c, b]`` and of the targets ``[k, r, b]``; the
                first convolution has the former only.
        """
        raise NotImplementedError  # abstract

    def combine(self, number: int, parameters: Parameters, sent: Messages, keep: Tensor, level: Level) -> Tensor:
        """``[k, r, h]`` from the messages over the edges in ``keep`` ``[E]`` bool."""
        raise NotImplementedError  # abstract

    def activate(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def head(self, parameters: Parameters, out: Tensor) -> Tensor:
        """Logits from the last convolution's result."""
        if self.model.head == "conv":
            return out
        return affine(self.activate(out), parameters, "head")

    def forward(
        self,
        plan: Plan,
        parameters: Parameters,
        stored: Callable[[int, Level], Tensor],
        keep: Keep,
        dropout: Callable[[Tensor], Tensor],
        features: Any = None,
    ) -> Tensor:
        """The last convolution of ``plan``'s result ``[k, r, h]``, without activation.

        Args:
            stored: level number to the store's rows ``[k, c - own, h]`` that it takes.
            keep: the edges ``[E]`` bool of a level that take part, which always include the loops.
            features: what the first convolution's weight is multiplied with, if not ``plan.features``.
        """
        hidden = None
        for number, level in enumerate(plan.levels):
            if number == 0:
                product, mine = (plan.features if features is None else features).__matmul__, None
            else:
                hidden = dropout(self.activate(hidden))
                targets = take(hidden, level.targets)
                sources = hidden if level.shape[2] == level.own else torch.cat([hidden, stored(number, level)], 1)
                product = lambda weight, sources=sources: linear(sources, weight)  # noqa: E731
                mine = lambda weight, targets=targets: linear(targets, weight)  # noqa: E731
            sent = self.messages(number, parameters, product, mine, level)
            hidden = self.combine(number, parameters, sent, keep(number, level, sent), level)
        return hidden


class SageConvolutions(Convolutions):
    """``mean over kept neighbours of W_l h + W_r h_v + b``."""

    def messages(self, number: int, parameters: Parameters, product: Product, mine: Product | None, level: Level) -> Messages:
        weight = parameters[f"conv{number}.weight"]
        near, own = _halves(number, weight, product, mine, level)
        return Messages(near, own, None)

    def combine(self, number: int, parameters: Parameters, sent: Messages, keep: Tensor, level: Level) -> Tensor:
        k, r, _ = level.shape
        used = keep & ~level.loop
        count = torch.zeros(k * r, dtype=sent.values.dtype, device=used.device).index_add_(
            0, level.edges.target, used.to(sent.values.dtype)
        )
        some = count > 0
        # A target without neighbours would have a softmax over nothing: its loop stands in and is multiplied by zero.
        scores = torch.where(used | ~some[level.edges.target], 0.0, -torch.inf).to(sent.values.dtype)[None]
        mean = attend(level, sent.values, scores) * some.view(k, r, 1)
        return mean + sent.own + parameters[f"conv{number}.bias"][:, None]


class GatConvolutions(Convolutions):
    """Attention over the kept neighbours and the node itself."""

    attends = True

    def activate(self, x: Tensor) -> Tensor:
        return ACTS[self.model.act](x)

    def messages(self, number: int, parameters: Parameters, product: Product, mine: Product | None, level: Level) -> Messages:
        name = f"conv{number}."
        weight = parameters[name + "weight"]
        if self.model.version == "v2":
            near, own = _halves(number, weight, product, mine, level)
            shift = parameters[name + "shift"][:, None].chunk(2, -1)
            near, own = near + shift[0], own + shift[1]
            return Messages(near, None, dynamic_scores(level, near, own, parameters[name + "attention"], SLOPE))
        near = product(weight)
        vectors = [parameters[name + side] for side in ("source", "target")]
        heads = vectors[0].shape[1]
        source, target = (torch.einsum("knhd,khd->knh", near.unflatten(2, (heads, -1)), vector) for vector in vectors)
        return Messages(near, None, additive_scores(level, source, take(target, level.targets), SLOPE))

    def combine(self, number: int, parameters: Parameters, sent: Messages, keep: Tensor, level: Level) -> Tensor:
        out = attend(level, sent.values, torch.where(keep | level.loop, sent.scores, -torch.inf))
        heads = len(sent.scores)
        if self.model.head == "conv" and number == self.depth - 1 and heads > 1:
            out = out.unflatten(2, (heads, -1)).mean(2)
        return out + parameters[f"conv{number}.bias"][:, None]


def _halves(number: int, weight: Tensor, product: Product, mine: Product | None, level: Level) -> tuple[Tensor, Tensor]:
    """The sources' product with the first half of a weight's columns and the targets' with the second.

    The input features are multiplied with both halves at once: a sparse product wants the weight as it lies in memory.
    """
    if number == 0:
        near, own = product(weight).chunk(2, -1)
        return near.contiguous(), take(own, level.targets)
    near, own = weight.chunk(2, -1)
    return product(near), mine(own)


def take(rows: Tensor, index: Tensor) -> Tensor:
    """``[k, c, h]`` and ``[k, r]`` to ``[k, r, h]``."""
    k, c, _ = rows.shape
    flat = index + torch.arange(k, device=index.device)[:, None] * c
    return rows.flatten(0, 1).index_select(0, flat.flatten()).unflatten(0, index.shape)


CONVOLUTIONS = {GAT: GatConvolutions, GraphSAGE: SageConvolutions}


def convolutions(model: Backbone) -> Convolutions:
    """The layers of ``model``.

    Raises:
        Unsuited: its layers cannot be taken apart.
    """
    if type(model) not in CONVOLUTIONS:
        raise Unsuited("needs a backbone whose convolutions exchange embeddings (model=gat, model=graphsage)")
    return CONVOLUTIONS[type(model)](model)
