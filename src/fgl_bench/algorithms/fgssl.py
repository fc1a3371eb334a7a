"""FGSSL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.attention import per_edge, row_sums
from fgl_bench.engine.batch import Batch, Limited, Operator, adjacency, gcn_operator, looped_operator
from fgl_bench.engine.dropout import Dropout, no_dropout
from fgl_bench.engine.kernels.routing import unit
from fgl_bench.engine.network import Output
from fgl_bench.engine.random_numbers import mix, step_key
from fgl_bench.engine.sparse import BlockSparse, Edges
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import SHARE, Range, Unsuited, above, at_least
from fgl_bench.models.base import Backbone

UNFIT = "needs GCN's operator, of which it can drop edges, or algorithm.weak_edge_drop=0 algorithm.strong_edge_drop=0"


@dataclass
class FGSSL(FedAvg):
    """FedAvg with semantic contrast and structure distillation (Huang, Wan, Ye & Du, IJCAI 2023).

    At every local step the received model, without dropout, sees a weak view of the client's graph, and the model in training a strong
    one. A view omits each direction of an edge with one probability, and each feature with another. Two terms are added to the
    cross-entropy:

    * semantic contrast: ``contrast_weight`` times the mean over training nodes i of ``- mean over p of log softmax_j(cos(h_i, g_j) /
      temperature)_p``, where h are the trained model's representations before the last layer, g those of the received model, j all
      training nodes, and p those of the class of i, itself included;
    * structure distillation: ``structure_weight`` times the mean over nodes of ``KL(P_received || P_trained)``, where P_i is the softmax of
      ``cos(z_i, z_j) / structure_temperature`` over the node and its neighbors j, and z are logits.

    Nothing but the model is sent.

    Resolutions: the paper's objective; the authors' released code has a contrast of two views of the trained model only, with the weight
    1.5 and the temperature 0.1, the defaults here. Neighbors are those of the whole graph of the client. OpenFGL's port has no contrast and
    another structure term (``structure=edges``, weight 0.1, temperature 0.1): the mean over edges of ``KL(D_received || D_trained)``
    with ``D = softmax(|h_i - h_j| / structure_temperature)`` over the h's columns. The paper's weight of the structure term is in neither
    code; the default is 1. A model without hidden layer contrasts inputs of the last layer.

    Attributes:
        contrast_weight, temperature: of the semantic contrast.
        structure_weight, structure_temperature: of the structure distillation.
        structure: ``neighborhoods`` or ``edges``.
        weak_edge_drop, weak_feature_mask: probabilities of the received model's view.
        strong_edge_drop, strong_feature_mask: probabilities of the trained model's view.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn"}
    by_clients: ClassVar[bool] = True
    node_batches: ClassVar[bool] = False
    multilabel: ClassVar[bool] = False
    rebuilt: ClassVar[tuple[str, ...]] = ("streams", "_places")
    ranges: ClassVar[dict[str, Range]] = {
        "contrast_weight": at_least(0), "temperature": above(0), "structure_weight": at_least(0), "structure_temperature": above(0),
        "weak_edge_drop": SHARE, "weak_feature_mask": SHARE, "strong_edge_drop": SHARE, "strong_feature_mask": SHARE,
    }  # fmt: skip

    contrast_weight: float
    temperature: float
    structure_weight: float
    structure_temperature: float
    structure: Literal["neighborhoods", "edges"]
    weak_edge_drop: float
    weak_feature_mask: float
    strong_edge_drop: float
    strong_feature_mask: float

    def check_choices(self, model: Backbone, split: Split) -> None:
        super().check_choices(model, split)
        if (self.weak_edge_drop or self.strong_edge_drop) and getattr(type(model), "hop", None) is not gcn_operator:
            raise Unsuited(UNFIT)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.streams = setting.streams("fgssl")
        self.trips = torch.zeros_like(self.streams)
        self._places: WeakKeyDictionary[Batch, Places] = WeakKeyDictionary()

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        if not self.contrast_weight and not self.structure_weight:
            return None
        model, batch = self.setting.model, step.batch
        key = step_key(self.streams[batch.replicas], self.trips[batch.replicas], step.epoch)
        weak, strong = (
            view(batch, edge_drop, feature_mask, mix(key + number))
            for number, edge_drop, feature_mask in (
                (1, self.weak_edge_drop, self.weak_feature_mask),
                (2, self.strong_edge_drop, self.strong_feature_mask),
            )
        )
        with torch.no_grad():
            received = step.layout.views(step.received)
            teacher = model.forward(received, weak, model.first(received, weak), no_dropout)
        dropout = Dropout(model.dropout, mix(key + 3)) if model.drops else no_dropout
        student = model.forward(step.parameters, strong, model.first(step.parameters, strong), dropout)
        terms = []
        if self.contrast_weight:
            if batch not in self._places:
                self._places[batch] = Places.of(batch)
            terms.append(self.contrast_weight * contrast(student.hidden, teacher.hidden, batch, self._places[batch], self.temperature))
        if self.structure_weight:
            terms.append(self.structure_weight * STRUCTURES[self.structure](student, teacher, batch, self.structure_temperature))
        return sum(terms[1:], terms[0])

    def report(self, trips: Trips) -> dict[str, Tensor]:
        self.trips[trips.batch.replicas] += 1
        return super().report(trips)


class Places(NamedTuple):
    """Where the T training nodes lie when each replica's are padded to the most, m.

    Attributes:
        slot: ``[T]`` positions in ``[k * m]``.
        known: ``[k, m]`` bool.
    """

    slot: Tensor
    known: Tensor

    @classmethod
    def of(cls, batch: Batch) -> Places:
        known = np.arange(max(1, batch.num_train.max())) < batch.num_train[:, None]
        return cls(put(np.flatnonzero(known), batch.device), put(known, batch.device))

    def padded(self, rows: Tensor) -> Tensor:
        """Return ``[T, h]`` as ``[k, m, h]``, with zeros."""
        return rows.new_zeros(self.known.numel(), rows.shape[1]).index_copy(0, self.slot, rows).unflatten(0, self.known.shape)


# ---- terms


def contrast(student: Tensor, teacher: Tensor, batch: Batch, places: Places, temperature: float) -> Tensor:
    """Return the semantic contrast ``[k]`` of representations ``[k, n, h]``."""
    train = batch.training_nodes
    anchors, samples = (unit(places.padded(x.flatten(0, 1).index_select(0, train.index))) for x in (student, teacher))
    similarity = (anchors @ samples.mT / temperature).masked_fill(~places.known[:, None], torch.finfo(anchors.dtype).min)
    labels = places.padded(train.labels[:, None])[..., 0]
    alike = (labels[:, :, None] == labels[:, None]) & places.known[:, None]
    logs = torch.where(alike, similarity.log_softmax(-1), 0.0)
    each = -logs.sum(-1) / alike.sum(-1).clamp(min=1) * places.known
    return each.sum(1) / places.known.sum(1).clamp(min=1)


def neighborhoods(student: Output, teacher: Output, batch: Batch, temperature: float) -> Tensor:
    """Return the mean over nodes ``[k]`` of ``KL(P_received || P_trained)`` of similarities inside neighborhoods."""
    edges = batch.operator(looped_operator).edges
    inside, wanted = ((_similarity(output.logits, edges) - 1) / temperature for output in (student, teacher))  # at most 0
    power = wanted.exp()
    share = power / row_sums(power[:, None], edges.into)[edges.target, 0]
    # The share sums to one in every neighborhood.
    cross = _per_node(share * (share.clamp(min=1e-30).log() - inside), edges) + _per_node(inside.exp(), edges).clamp(min=1e-30).log()
    return (cross.view(batch.valid.shape) * batch.valid).sum(1) / batch.valid.sum(1)


def _similarity(z: Tensor, edges: Edges) -> Tensor:
    source, target = _Ends.apply(unit(z).flatten(0, 1), edges)
    return (source * target).sum(-1)


def _per_node(values: Tensor, edges: Edges) -> Tensor:
    return torch.segment_reduce(values, "sum", offsets=edges.into)


def by_edges(student: Output, teacher: Output, batch: Batch, temperature: float) -> Tensor:
    """Return the mean over edges ``[k]`` of ``KL(D_received || D_trained)`` of representations' differences."""
    edges = batch.operator(adjacency).edges
    inside, wanted = (_differences(output.hidden, edges) / temperature for output in (student, teacher))
    inside, wanted = inside.log_softmax(-1), wanted.log_softmax(-1)
    each = _per_node((wanted.exp() * (wanted - inside)).sum(-1), edges).view(batch.valid.shape).sum(1)
    return each / put(np.diff(edges.bounds), batch.device).clamp(min=1)


def _differences(h: Tensor, edges: Edges) -> Tensor:
    source, target = _Ends.apply(h.flatten(0, 1), edges)
    return (source - target).abs()


STRUCTURES = {"neighborhoods": neighborhoods, "edges": by_edges}


class _Ends(torch.autograd.Function):
    """Rows ``[N, h]`` of every edge's source and target, ``[E, h]`` each; the gradient is summed in a fixed order."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        ctx.edges = edges
        return rows.index_select(0, edges.source), rows.index_select(0, edges.target)

    @staticmethod
    def backward(ctx: Any, source: Tensor, target: Tensor) -> tuple[Tensor, None]:
        edges = ctx.edges
        return row_sums(source.index_select(0, edges.order), edges.out_of) + row_sums(target.contiguous(), edges.into), None


# ---- views


def view(batch: Batch, edge_drop: float, feature_mask: float, key: Tensor) -> Batch:
    """Return the batch without some edges and features; itself where both probabilities are zero."""
    return cast(Batch, View(batch, edge_drop, feature_mask, key)) if edge_drop or feature_mask else batch


class View(Limited):
    """Stand-in for a batch, of which each direction of an edge is omitted with one probability, and each feature with another.

    Args:
        key: ``[k]`` int64, decides what is omitted.
    """

    refusal = "cannot run this backbone on its views of a graph, which have no {name}"

    def __init__(self, batch: Batch, edge_drop: float, feature_mask: float, key: Tensor):
        self.batch, self.edge_drop, self.key = batch, edge_drop, key
        self.features = _Masked(batch, feature_mask, mix(key + 1))

    def operator(self, build: Operator) -> Any:
        if not self.edge_drop:
            return self.batch.operator(build)
        if build is not gcn_operator:
            raise Unsuited(UNFIT)
        return _Thinned(self.batch.operator(adjacency), self.edge_drop, self.key)


class _Masked(Limited):
    refusal = View.refusal

    def __init__(self, batch: Batch, rate: float, key: Tensor):
        self.features, self.shape = batch.features, batch.features.shape
        ones = torch.ones(batch.size, self.shape[2], 1, dtype=batch.dtype, device=batch.device)
        self.mask = (Dropout(rate, key)(ones) > 0).to(batch.dtype)

    def __matmul__(self, weight: Tensor) -> Tensor:
        return self.features @ (self.mask * weight)


class _Thinned(Limited):
    """``D^-1/2 (A + I) D^-1/2`` of the edges that are left, with D the edges into a node and one, as PyG's GCN computes it."""

    refusal = View.refusal

    def __init__(self, graph: BlockSparse, rate: float, key: Tensor):
        self.edges = graph.edges
        self.weights = (per_edge(graph, 1, Dropout(rate, key))[0] > 0).to(graph.bags.values.dtype)
        self.scale = (row_sums(self.weights[:, None], self.edges.into) + 1).rsqrt()

    def __matmul__(self, x: Tensor) -> Tensor:
        rows = self.scale * x.flatten(0, 1)
        return (self.scale * (_Sum.apply(rows, self.edges, self.weights) + rows)).view(x.shape)


class _Sum(torch.autograd.Function):
    """The weighted sum of the rows ``[N, h]`` of every target's sources."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, edges: Edges, weights: Tensor) -> Tensor:
        ctx.edges, ctx.weights = edges, weights
        return _bags(rows, edges.bags(False, 1), weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _bags(gradient.contiguous(), ctx.edges.bags(True, 1), ctx.weights[ctx.edges.order]), None, None


def _bags(rows: Tensor, bags: tuple[Tensor, Tensor], weights: Tensor) -> Tensor:
    index, ends = bags
    if not index.numel():
        return torch.zeros_like(rows)
    return torch.nn.functional.embedding_bag(index, rows, ends, mode="sum", per_sample_weights=weights, include_last_offset=True)
