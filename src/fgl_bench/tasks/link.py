"""Prediction of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph, Graph
from fgl_bench.data.graph_set import ClientOfPairs
from fgl_bench.data.masks import Masks, held_out_masks, random_masks
from fgl_bench.data.sparsity import Sparsity
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.linear import affine
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.models.base import Backbone
from fgl_bench.tasks.base import Head, Task, check_whole_clients
from fgl_bench.utils.seeding import generator

ENUMERATED = 1 << 22
"""Pairs of a client up to which negatives are drawn from a list of all pairs without an edge."""


@dataclass
class LinkPrediction(Task):
    """Pairs of a client's nodes are labeled 1 if an edge joins them, else 0.

    The undirected edges of each client are divided into training, validation and test edges by ``split.ratios``, in random order
    (stream ``masks/i``). Messages pass along training edges only, in training and in evaluation. As many negatives as edges are
    drawn once per repetition from the same stream: different pairs without an edge in the client's whole graph, uniformly, divided in
    the same ratios. A dense client has as many negatives as there are such pairs. Edges between clients are nobody's examples.

    With ``split.reserve`` a pair is in the reserve if a hash of its nodes is below that share, in every repetition: pairs of the reserve
    are never tested, and no other pairs validate.

    The score s of a pair is ``<z_u, z_v>`` (``dot``), or two linear layers on the product ``z_u * z_v`` by entries (``mlp``), where z are
    the embeddings that the backbone's convolutions give. The logits are (0, s), so that the cross-entropy is the binary one of s.

    Attributes:
        decoder: as above.
        hidden: width of the embeddings.
        ratios: default [train, val, test]; ``split.ratios`` overrides it.
        metric: selects models and is the table's score.
    """

    name: ClassVar[str] = "link"
    ranges: ClassVar[dict[str, Range]] = {"hidden": at_least(1)}

    decoder: Literal["dot", "mlp"]
    hidden: int
    ratios: list[float] | None
    metric: str

    def network(self, model: Backbone) -> Backbone:
        return LinkHead(model, self)

    def check(self, split: Split, sparsity: Sparsity, out_of_core: object) -> None:
        check_whole_clients(self, split, sparsity, out_of_core)
        if split.overlaps:
            raise UserError("task=link: clients of this split share nodes, and one would train on another's test edges; use another split")
        if split.train_per_class is not None or not split.stratify:
            wrong = f"train_per_class={split.train_per_class}" if split.stratify else "stratify=false"
            raise UserError(f"split.{wrong}: task=link divides edges and negatives by ratios, each for itself; leave it out")
        if split.masks != "client":
            raise UserError(f"split.masks={split.masks}: masks of task=link are of a client's edges; use split.masks=client")

    def default_ratios(self) -> list[float] | None:
        return self.ratios

    def facts(self, graph: Graph) -> dict[str, Any]:
        return {"num_classes": 2, "metric": self.metric}

    def labeled(
        self,
        split: Split,
        units: Graph,
        parts: Sequence[np.ndarray],
        clients: Sequence[ClientGraph],
        ratios: tuple[float, float, float],
        seeds: tuple[int, int],
        cache_dir: str | Path | None,
    ) -> tuple[ClientGraph, ...]:
        labeled: list[ClientGraph] = []
        start = 0
        for i, client in enumerate(clients):
            labeled.append(divided(client, ratios, generator(seeds[1], "masks", i), start, split.reserve))
            start += labeled[-1].labels.size
        return tuple(labeled)


def divided(
    client: ClientGraph, ratios: tuple[float, float, float], rng: np.random.Generator, start: int, reserve: float | None = None
) -> ClientOfPairs:
    """Divide the edges of ``client`` and draw negatives; pairs are numbered from ``start``."""

    def draw_masks(pairs: np.ndarray) -> Masks:
        one_class = np.zeros(pairs.shape[1], dtype=np.int64)
        if reserve is None:
            return random_masks(one_class, ratios, rng)
        return held_out_masks(one_class, ratios, rng, hashed(client.nodes[pairs]) < reserve)

    edges = client.edges[:, client.edges[0] < client.edges[1]]
    masks = draw_masks(edges)
    negatives = draw_negatives(edges, client.num_nodes, rng)
    negative_masks = draw_masks(negatives)
    messages = edges[:, masks[0]]
    both = np.concatenate([messages, messages[::-1]], 1)
    pairs = np.concatenate([edges, negatives], 1)
    return ClientOfPairs(
        client.nodes,
        client.features,
        np.ascontiguousarray(both[:, np.lexsort(both[::-1])]),
        np.repeat([1, 0], [edges.shape[1], negatives.shape[1]]),
        *(np.concatenate(both_masks) for both_masks in zip(masks, negative_masks, strict=True)),
        pairs=pairs,
        ids=np.arange(start, start + pairs.shape[1]),
    )


def hashed(pairs: np.ndarray) -> np.ndarray:
    """Return numbers ``[m]`` in [0, 1) that depend on the nodes ``pairs [2, m]`` only, the smaller node first."""
    import pandas as pd

    low, high = np.sort(pairs, axis=0).astype(np.uint64)
    return pd.util.hash_array((low << np.uint64(32)) | high, categorize=False) / 2.0**64


def draw_negatives(edges: np.ndarray, nodes: int, rng: np.random.Generator) -> np.ndarray:
    """Draw different pairs ``[2, E]`` without an edge, uniformly; fewer if there are fewer.

    Args:
        edges: ``[2, E]``, each edge once, the smaller node first.
    """
    known = edges[0] * nodes + edges[1]
    count = min(known.size, nodes * (nodes - 1) // 2 - known.size)
    if nodes * nodes <= ENUMERATED:
        low, high = np.triu_indices(nodes, 1)
        free = np.setdiff1d(low * nodes + high, known, assume_unique=True)
        return np.stack(np.divmod(rng.choice(free, count, replace=False), max(nodes, 1)))
    drawn = np.empty(0, dtype=np.int64)
    while drawn.size < count:
        low, high = np.sort(rng.integers(nodes, size=(2, count)), axis=0)
        new = (low * nodes + high)[low < high]
        drawn = np.concatenate([drawn, new[~np.isin(new, known)]])
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]  # in the order of the draws
    return np.stack(np.divmod(drawn[:count], nodes))


class LinkHead(Head):
    """A decoder after a backbone."""

    def __init__(self, inner: Backbone, task: LinkPrediction):
        super().__init__(inner, task.hidden)
        self.task = task

    def shapes(self, num_classes: int) -> Mapping[str, tuple[int, ...]]:
        wide = self.width
        layers = {"decoder0.weight": (wide, wide), "decoder0.bias": (wide,), "decoder1.weight": (wide, 1), "decoder1.bias": (1,)}
        return layers if self.task.decoder == "mlp" else {}

    def scope(self, batch: Batch) -> Batch:
        return cast(Part, batch).whole

    def predict(self, parameters: Parameters, batch: Batch, scope: Batch, embeddings: Tensor, dropout: DropoutFunction) -> Output:
        ends = [scope.operator(end, scope.examples) @ embeddings for end in (first_end, second_end)]
        if isinstance(batch, Part):
            ends = [batch.take(end) for end in ends]
        hidden = ends[0] * ends[1]
        if self.task.decoder == "mlp":
            hidden = dropout(torch.relu(affine(hidden, parameters, "decoder0")))
            score = affine(hidden, parameters, "decoder1")
        else:
            score = hidden.sum(-1, keepdim=True)
        return Output(hidden, torch.cat([torch.zeros_like(score), score], -1))


def _end(client: ClientGraph, side: int) -> sp.csr_matrix:
    ends = cast(ClientOfPairs, client).pairs[side]
    return sp.csr_matrix((np.ones(ends.size), (np.arange(ends.size), ends)), shape=(ends.size, client.num_nodes))


def first_end(client: ClientGraph) -> sp.csr_matrix:
    """``[m, n]``: selects the first node of each pair."""
    return _end(client, 0)


def second_end(client: ClientGraph) -> sp.csr_matrix:
    """``[m, n]``: selects the second node of each pair."""
    return _end(client, 1)
