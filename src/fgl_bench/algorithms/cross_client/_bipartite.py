"""Backbones as separate convolutions from sources to targets.

Message passing across clients has sources that are not nodes of the replica, and masked edges. A :class:`Convolutions` describes a
backbone; the supported ones are in ``CONVOLUTIONS``. An edge from a target to itself (a loop) is in every
:class:`~fgl_bench.algorithms.cross_client._halo.Level`; attention uses it, the mean over neighbors does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.cross_client._halo import First, Level, Plan
from fgl_bench.engine.attention import additive_scores, attend
from fgl_bench.engine.kernels.dynamic_scores import BLOCK, dynamic_scores
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.sparse import Edges
from fgl_bench.errors import Unsuited
from fgl_bench.models.base import Backbone
from fgl_bench.models.gat import ACTS, GAT, SLOPE
from fgl_bench.models.graphsage import GraphSAGE

Keep = Callable[[int, Level, "Messages"], Tensor]


class Features(Protocol):
    """Input features, as the first convolution asks for their products with its weight."""

    def products(self, weight: Tensor) -> Sequence[Tensor]: ...


class Messages(NamedTuple):
    """Messages of one convolution before the sum over neighbors.

    Attributes:
        values: ``[k, c, h]``, the message of every source.
        own: ``[k, r, h]``, the additional term of every target, besides its loop.
        scores: ``[H, E]`` attention logits of the edges; None for a backbone without attention.
    """

    values: Tensor
    own: Tensor | None
    scores: Tensor | None

    @property
    def attention(self) -> Tensor:
        """The scores, where the backbone has them."""
        assert self.scores is not None
        return self.scores


class Convolutions:
    """The layers of a backbone.

    Attributes:
        depth: number of convolutions.
        widths: widths of the representations between convolutions (rows that clients may exchange).
        attends: True if edges have scores.
        parts: number of matrices concatenated in a convolution's weight.
        part: the only matrix needed in the first convolution of a node without neighbors.
    """

    attends: ClassVar[bool] = False
    parts: int = 1
    part: ClassVar[int] = 0

    def __init__(self, model: GAT | GraphSAGE):
        self.model, self.depth = model, model.layers
        self.widths = list(model._widths)[: model.layers - 1] if model.head == "conv" else list(model._widths)[:-1]

    def alone(self, parameters: Parameters, product: Tensor) -> Tensor:
        """Return the first convolution ``[k, r, h]`` of nodes without neighbors, given their product with ``part``."""
        raise NotImplementedError  # abstract

    def shift(self, number: int, parameters: Parameters) -> Tensor | None:
        """Return the shift that convolution ``number`` adds to its products, ``[k, parts * b]``, or None."""
        return None

    def messages(self, number: int, parameters: Parameters, near: Tensor, own: Tensor | None, level: Level) -> Messages:
        """Return the messages of convolution ``number``.

        Args:
            near: the shifted products of the sources with the first part of its weight, ``[k, c, b]``.
            own: the products of the targets with the second part, if any, ``[k, r, b]``.
        """
        raise NotImplementedError  # abstract

    def combine(self, number: int, parameters: Parameters, sent: Messages, keep: Tensor, level: Level) -> Tensor:
        """Sum the messages over the edges in ``keep [E]`` (bool) to ``[k, r, h]``."""
        raise NotImplementedError  # abstract

    def activate(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def head(self, parameters: Parameters, out: Tensor) -> Tensor:
        """Return logits, given the last convolution's result."""
        if self.model.head == "conv":
            return out
        return affine(self.activate(out), parameters, "head")

    def forward(
        self,
        plan: Plan,
        parameters: Parameters,
        stored: Callable[[int], Tensor],
        keep: Keep,
        dropout: Callable[[Tensor], Tensor],
        features: Features | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Return the result of the last convolution of ``plan``, ``[k, r, h]``, without activation.

        Args:
            stored: function from a level's number to its store ``[R, h]``.
            keep: function that returns the edges to use, ``[E]`` bool, always with the loops.
            features: input of the first convolution, ``plan.first.features`` by default.
            last: number of the convolution to return, the last one by default.
        """
        hidden = self.first(plan.first, parameters, keep, plan.first.features if features is None else features)
        for number, level in enumerate(plan.levels[:last], 1):
            hidden = dropout(self.activate(hidden))
            sent = self.sent(number, parameters, hidden, None if level.shape[2] == level.own else stored(number), level)
            hidden = self.combine(number, parameters, sent, keep(number, level, sent), level)
        return hidden

    def sent(self, number: int, parameters: Parameters, hidden: Tensor, store: Tensor | None, level: Level) -> Messages:
        """Return the messages of convolution ``number``, from its own sources ``[k, own, a]`` and the store ``[R, a]`` of remote rows."""
        near, own = self._products(number, parameters, hidden, store, level)
        return self.messages(number, parameters, near, own, level)

    def scores(self, number: int, parameters: Parameters, hidden: Tensor, store: Tensor, stamp: Tensor, level: Level) -> Tensor:
        """Return only the scores ``[H, E]`` of :meth:`sent`, without autograd; rows of the store with negative ``stamp [R]`` are zero."""
        return self.sent(number, parameters, hidden, None if level.shape[2] == level.own else store, level).attention

    def first(self, first: First, parameters: Parameters, keep: Keep, features: Features) -> Tensor:
        """Return the first convolution's result ``[k, r, h]``, without activation."""
        alone, *near = features.products(parameters["conv0.weight"])
        alone = self.alone(parameters, alone)
        if first.level is None or first.pick is None:
            return alone
        level, own = first.level, take(near[1], first.level.targets) if self.parts > 1 else None
        sent = self.messages(0, parameters, *self._shifted(0, parameters, near[0], own), level)
        joined = self.combine(0, parameters, sent, keep(0, level, sent), level)
        return torch.cat([alone.flatten(0, 1), joined.flatten(0, 1)]).index_select(0, first.pick).unflatten(0, first.shape)

    def _products(
        self, number: int, parameters: Parameters, hidden: Tensor, store: Tensor | None, level: Level
    ) -> tuple[Tensor, Tensor | None]:
        """Return the shifted products of sources ``[k, c, b]`` and targets ``[k, r, b]`` with their parts of the weight."""
        weight = parameters[f"conv{number}.weight"]
        if hidden.device.type == "cpu":
            return sides(hidden, store, weight, self.shift(number, parameters), level, self.parts)
        weights = weight.chunk(self.parts, -1)  # one chunk, so that the gradients of the parts are concatenated once
        own = linear(take(hidden, level.targets), weights[1]) if self.parts > 1 else None
        near = linear(hidden, weights[0])
        if store is not None:  # a separate product, since these rows need no gradient
            remote = store.index_select(0, level.entries.flatten()).unflatten(0, level.entries.shape)
            near = torch.cat([near, linear(remote, weights[0])], 1)
        return self._shifted(number, parameters, near, own)

    def _shifted(self, number: int, parameters: Parameters, near: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor | None]:
        shift = self.shift(number, parameters)
        if shift is None:
            return near, own
        parts = shift[:, None].chunk(self.parts, -1)
        return near + parts[0], None if own is None else own + parts[1]


class SageConvolutions(Convolutions):
    """``mean over kept neighbors of W_l h + W_r h_v + b``."""

    parts, part = 2, 1

    def alone(self, parameters: Parameters, product: Tensor) -> Tensor:
        return product + parameters["conv0.bias"][:, None]

    def messages(self, number: int, parameters: Parameters, near: Tensor, own: Tensor | None, level: Level) -> Messages:
        return Messages(near, own, None)

    def combine(self, number: int, parameters: Parameters, sent: Messages, keep: Tensor, level: Level) -> Tensor:
        assert sent.own is not None
        k, r, _ = level.shape
        used = keep & ~level.loop
        count = torch.zeros(k * r, dtype=sent.values.dtype, device=used.device).index_add_(
            0, level.edges.target, used.to(sent.values.dtype)
        )
        some = count > 0
        # A target without neighbors would have an empty softmax: its loop replaces it and is multiplied by zero.
        scores = torch.where(used | ~some[level.edges.target], 0.0, -torch.inf).to(sent.values.dtype)[None]
        mean = attend(level, sent.values, scores) * some.view(k, r, 1)
        return mean + sent.own + parameters[f"conv{number}.bias"][:, None]


class GatConvolutions(Convolutions):
    """Attention over the kept neighbors and the node itself."""

    attends = True
    model: GAT

    def __init__(self, model: GAT):
        super().__init__(model)
        self.parts = 2 if model.version == "v2" else 1

    def alone(self, parameters: Parameters, product: Tensor) -> Tensor:
        if self.model.version == "v2":
            product = product + parameters["conv0.shift"][:, None].chunk(2, -1)[0]
        return self._finish(0, product, parameters)

    def activate(self, x: Tensor) -> Tensor:
        return ACTS[self.model.act](x)

    def shift(self, number: int, parameters: Parameters) -> Tensor | None:
        return parameters.get(f"conv{number}.shift")

    def messages(self, number: int, parameters: Parameters, near: Tensor, own: Tensor | None, level: Level) -> Messages:
        name = f"conv{number}."
        if own is not None:  # version v2
            return Messages(near, None, dynamic_scores(level, near, own, parameters[name + "attention"], SLOPE))
        vectors = [parameters[name + side] for side in ("source", "target")]
        heads = vectors[0].shape[1]
        source, target = (torch.einsum("knhd,khd->knh", near.unflatten(2, (heads, -1)), vector) for vector in vectors)
        return Messages(near, None, additive_scores(level, source, take(target, level.targets), SLOPE))

    def scores(self, number: int, parameters: Parameters, hidden: Tensor, store: Tensor, stamp: Tensor, level: Level) -> Tensor:
        if hidden.device.type != "cpu" or self.model.version != "v2":
            return super().scores(number, parameters, hidden, store, stamp, level)
        known, name = stamp.numpy()[level.held] >= 0, f"conv{number}."
        weight, shift, attention = (parameters[name + part] for part in ("weight", "shift", "attention"))
        return drawn_scores(hidden, store, known, weight, shift, attention, level, SLOPE)

    def combine(self, number: int, parameters: Parameters, sent: Messages, keep: Tensor, level: Level) -> Tensor:
        out = attend(level, sent.values, torch.where(keep | level.loop, sent.attention, -torch.inf))
        return self._finish(number, out, parameters)

    def _finish(self, number: int, out: Tensor, parameters: Parameters) -> Tensor:
        """Average the heads of logits and add the bias."""
        if self.model.head == "conv" and number == self.depth - 1 and self.model.output_heads > 1:
            out = out.unflatten(2, (self.model.output_heads, -1)).mean(2)
        return out + parameters[f"conv{number}.bias"][:, None]


def take(rows: Tensor, index: Tensor) -> Tensor:
    """Select ``rows [k, c, h]`` by ``index [k, r]``, ``[k, r, h]``."""
    k, c, _ = rows.shape
    flat = index + torch.arange(k, device=index.device)[:, None] * c
    return rows.flatten(0, 1).index_select(0, flat.flatten()).unflatten(0, index.shape)


CONVOLUTIONS: dict[type[Backbone], type[Convolutions]] = {GAT: GatConvolutions, GraphSAGE: SageConvolutions}


def convolutions(model: Backbone) -> Convolutions:
    """Return the layers of ``model``.

    Raises:
        Unsuited: its layers cannot be separated.
    """
    if not isinstance(model, GAT | GraphSAGE) or type(model) not in CONVOLUTIONS:
        raise Unsuited("needs a backbone whose convolutions exchange embeddings (model=gat, model=graphsage)")
    return CONVOLUTIONS[type(model)](model)


def sides(
    hidden: Tensor, store: Tensor | None, weight: Tensor, shift: Tensor | None, level: Level, parts: int
) -> tuple[Tensor, Tensor | None]:
    """Return products of the sources and, with two ``parts``, of the targets: rows times a part of the weight, plus its shift.

    Args:
        hidden: ``[k, own, a]``, the replicas' own sources.
        store: ``[R, a]``, remote rows without gradient; None if the level uses none.
        weight: ``[k, a, parts * b]``.
        shift: ``[k, parts * b]``, or None.

    Returns:
        ``[k, c, b]`` and ``[k, r, b]``; zeros in padding.
    """
    return _Sides.apply(hidden, weight, shift, store, level, parts)


def _sources(hidden: Tensor, store: Tensor | None, level: Level, i: int) -> Tensor:
    """Return the source rows of replica i: its own, then remote rows."""
    first, last = int(level.bounds[i]), int(level.bounds[i + 1])
    if store is None or first == last:
        return hidden[i]
    rows = hidden.new_empty(level.own + last - first, hidden.shape[2])
    rows[: level.own] = hidden[i]
    torch.index_select(store, 0, level.asked[first:last], out=rows[level.own :])
    return rows


def _times(rows: Tensor, weight: Tensor, shift: Tensor | None, out: Tensor) -> None:
    if shift is None:
        torch.mm(rows, weight, out=out)
    else:
        torch.addmm(shift, rows, weight, out=out)


class _Sides(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, shift: Tensor | None, store: Tensor | None, level: Level, parts: int
    ) -> tuple[Tensor, Tensor | None]:
        (k, r, c), width = level.shape, weight.shape[2] // parts
        near = hidden.new_zeros(k, c, width)
        own = hidden.new_zeros(k, r, width) if parts > 1 else None
        saved = []
        for i in range(k):
            rows = _sources(hidden, store, level, i)
            bias = None if shift is None else shift[i]
            _times(rows, weight[i, :, :width], None if bias is None else bias[:width], near[i, : len(rows)])
            if own is not None:
                _times(hidden[i].index_select(0, level.targets[i]), weight[i, :, width:], None if bias is None else bias[width:], own[i])
            if ctx.needs_input_grad[1]:
                saved.append(rows)
        ctx.level, ctx.width, ctx.shifted, ctx.rows = level, width, shift is not None, saved
        ctx.save_for_backward(hidden, weight)
        return near, own

    @staticmethod
    def backward(ctx: Any, near: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        (hidden, weight), level, width = ctx.saved_tensors, ctx.level, ctx.width
        to_hidden, to_weight = torch.empty_like(hidden), torch.empty_like(weight)
        for i, rows in enumerate(ctx.rows):
            sent = near[i, : len(rows)]
            torch.mm(rows.mT, sent, out=to_weight[i, :, :width])
            torch.mm(sent[: level.own], weight[i, :, :width].mT, out=to_hidden[i])
            if own is not None:
                torch.mm(hidden[i].index_select(0, level.targets[i]).mT, own[i], out=to_weight[i, :, width:])
                to_hidden[i].index_add_(0, level.targets[i], own[i] @ weight[i, :, width:].mT)
        to_shift = None
        if ctx.shifted:
            to_shift = torch.cat([side.sum(1) for side in (near, own) if side is not None], 1)
        return to_hidden, to_weight, to_shift, None, None, None


def drawn_scores(
    hidden: Tensor, store: Tensor, known: np.ndarray, weight: Tensor, shift: Tensor, vectors: Tensor, level: Level, slope: float
) -> Tensor:
    """Return :func:`~fgl_bench.engine.kernels.dynamic_scores.dynamic_scores` ``[H, E]`` of a convolution's edges, without autograd.

    Args:
        hidden: ``[k, own, a]``, the replicas' own sources.
        store: ``[R, a]``, remote rows.
        known: host bool, True for entries of ``level.held`` that have been fetched.
        weight, shift: ``[k, a, 2 * b]`` and ``[k, 2 * b]``, the sources' part first.
        vectors: ``[k, H, d]``, with ``H * d = b``.
    """
    (k, r, _), own, bounds, width = level.shape, level.own, level.bounds, weight.shape[2] // 2
    counts = np.concatenate([[0], np.cumsum(known)])[bounds]
    near = own + np.diff(counts) + 1  # rows of every replica: its own, known remote rows, one row of zeros
    positions = _positions(level, known, counts, near)
    asked = level.asked[torch.from_numpy(known)]
    rows = hidden.new_empty(int(near.max()), hidden.shape[2])
    ends = hidden.new_empty(int(near.max()) + r, width)
    scores = hidden.new_empty(len(positions), vectors.shape[1])
    for i in range(k):
        first, last, size = int(level.edges.bounds[i]), int(level.edges.bounds[i + 1]), int(near[i])
        if first == last:
            continue
        rows[:own] = hidden[i]
        torch.index_select(store, 0, asked[counts[i] : counts[i + 1]], out=rows[own : size - 1])
        rows[size - 1].zero_()
        torch.addmm(shift[i, :width], rows[:size], weight[i, :, :width], out=ends[:size])
        torch.addmm(shift[i, width:], hidden[i].index_select(0, level.targets[i]), weight[i, :, width:], out=ends[size : size + r])
        _set(ends[: size + r], vectors[i], slope, positions, level.edges, slice(i * r, i * r + r), scores)
    return scores.mT.contiguous()


def _set(ends: Tensor, vectors: Tensor, slope: float, positions: np.ndarray, edges: Edges, targets: slice, scores: Tensor) -> None:
    """Set the scores ``scores[e]`` of the edges into one replica's targets.

    Args:
        ends: ``[n + r, b]``, the replica's n sources followed by its r targets.
        vectors: ``[H, d]``.
        positions: ``[E]``, see :func:`_positions`.
        targets: the replica's slice of the ``[k * r]`` targets.
        scores: ``[E, H]``, output.
    """
    first, last = (int(edges.into[v]) for v in (targets.start, targets.stop))
    most, size = max(1, BLOCK["cpu"] // ends.shape[1]), len(ends) - (targets.stop - targets.start)
    pairs = torch.stack([torch.from_numpy(positions[first:last]), edges.target[first:last].int() + (size - targets.start)], dim=1)
    starts = torch.arange(0, 2 * most + 1, 2, dtype=torch.int32)
    for start in range(0, last - first, most):
        part = pairs[start : start + most]
        sums = torch.embedding_bag(ends, part.flatten(), starts[: len(part) + 1], False, 0, False, None, True)[0]
        sums = F.leaky_relu_(sums, slope).mul_(vectors.flatten())
        scores[first + start : first + start + len(part)] = sums.unflatten(1, vectors.shape).sum(-1)


def _positions(level: Level, known: np.ndarray, counts: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return the position of every edge's source among the rows of its replica, ``[E]`` int32."""
    (k, _, c), own = level.shape, level.own
    holder = np.repeat(np.arange(k), np.diff(level.bounds))
    position = np.where(known, own + np.cumsum(known) - 1 - counts[holder], near[holder] - 1)
    table = np.zeros((k, c), dtype=np.int32)
    table[:, :own] = np.arange(own)
    table[holder, own + np.arange(holder.size) - level.bounds[holder]] = position
    return table.ravel()[level.edges.source.numpy()]
