"""Graphs mended with generated neighbours: while the generators are trained (FedSage+), and for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.algorithms._limited import Limited
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, DenseBlocks, Operator, adjacency, gcn_operator, mean_operator, plain_operator
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.engine.transfer import put


class _Interleaved:
    """Every real node's features and those of its P places in turn; of places, and nodes, that have none they are zero.

    Args:
        generated: ``[k, m_j, F]`` for place j.
        nodes: ``[k, m]``, different ones, of which the first m_j have place j.
    """

    def __init__(self, real: BlockSparse | DenseBlocks, generated: Sequence[Tensor], nodes: Tensor, most: int):
        self.real, self.generated, self.most = real, generated, most
        self.slots = torch.cat([nodes[:, : rows.shape[1]] * most + place for place, rows in enumerate(generated)], 1)

    def __matmul__(self, weight: Tensor) -> Tensor:
        real, made = self.real @ weight, torch.cat([torch.bmm(rows, weight) for rows in self.generated], 1)
        spread = made.new_zeros(len(made), real.shape[1] * self.most, made.shape[2])
        spread = spread.scatter(1, self.slots[..., None].expand_as(made), made)
        return torch.cat([real[:, :, None], spread.unflatten(1, (-1, self.most))], 2).flatten(1, 2)


class _Limited(Limited):
    refusal = "cannot train this backbone on graphs being mended, which have no {name}"


class MendedGraph(_Limited):
    """Impaired graphs with generated neighbours that still move, for a backbone in place of a Batch; differentiable in the features.

    Nodes: every real one followed by its P places, ``n (1 + P)`` in all (so that the draws of a dropout do not depend on
    padding); a place is joined with its node, in both directions, where ``slots`` says so.

    Args:
        features: ``[k, m_j, F]`` for every place j that is used, see :func:`~fgl_bench.algorithms.fedsage_plus._neighgen.needed`.
        slots: ``[k, n, P]`` bool.
        nodes: ``[k, m]``, different ones, of which the first m_j have place j.
    """

    def __init__(self, batch: Batch, features: Sequence[Tensor], slots: Tensor, nodes: Tensor):
        self.batch, self.slots = batch, slots.to(batch.dtype)
        self.features = _Interleaved(batch.features, features, nodes, slots.shape[2])
        degree = (batch.degree + self.slots.sum(-1))[..., None]
        self.degree = torch.cat([degree, self.slots], 2).flatten(1, 2)
        self.valid = torch.cat([batch.valid[..., None], slots], 2).flatten(1, 2)

    def real(self, x: Tensor) -> Tensor:
        """The real nodes' rows, ``[k, n (1 + P), h]`` to ``[k, n, h]``."""
        return x.unflatten(1, (self.batch.nodes, -1))[:, :, 0]

    def neighbours(self, x: Tensor) -> Tensor:
        """The sum over the neighbours, ``[k, n (1 + P), h]`` to the same."""
        slots, made, real = self.slots[..., None], x.unflatten(1, (self.batch.nodes, -1))[:, :, 1:], self.real(x)
        near = self.batch.operator(adjacency) @ real + (made * slots).sum(2)
        return torch.cat([near[:, :, None], real[:, :, None] * slots], 2).flatten(1, 2)

    def operator(self, build: Operator) -> _Operator:
        if build not in OPERATORS:
            self.__getattr__(build.__name__)
        return _Operator(self, OPERATORS[build])


@dataclass
class _Operator(_Limited):
    graph: MendedGraph
    apply: Callable[[MendedGraph, Tensor], Tensor]

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.apply(self.graph, x)


def _mean(graph: MendedGraph, x: Tensor) -> Tensor:
    return graph.neighbours(x) / graph.degree.clamp(min=1)[..., None]


def _symmetric(graph: MendedGraph, x: Tensor) -> Tensor:
    scale = (graph.degree + 1).rsqrt()[..., None]
    return scale * (graph.neighbours(scale * x) + scale * x)


def _without_loops(graph: MendedGraph, x: Tensor) -> Tensor:
    scale = torch.where(graph.degree > 0, graph.degree.clamp(min=1).rsqrt(), 0.0)[..., None]
    return scale * graph.neighbours(scale * x)


OPERATORS = {mean_operator: _mean, gcn_operator: _symmetric, plain_operator: _without_loops, adjacency: MendedGraph.neighbours}


class MendedFeatures:
    """Input features of mended graphs: the real nodes' as they were, the generated ones' dense.

    Args:
        real: ``[k, n, F]``, zero in generated nodes.
        generated: ``[k, g + 1, F]``, the last row zero.
        place: ``[k, n]`` row of ``generated`` for every node, g for real ones.
    """

    def __init__(self, real: BlockSparse | DenseBlocks, generated: Tensor, place: Tensor):
        self.real, self.generated, self.place, self.shape = real, generated, place, real.shape

    def select(self, rows: Sequence[int]) -> MendedFeatures:
        index = put(rows, self.place.device)
        return MendedFeatures(self.real.select(rows), self.generated[index], self.place[index])

    def __matmul__(self, weight: Tensor) -> Tensor:
        made = torch.bmm(self.generated, weight)
        if made.is_cuda:  # backward, gather adds with atomics there, and an index sorts
            return self.real @ weight + made[torch.arange(len(made), device=made.device)[:, None], self.place]
        return self.real @ weight + made.gather(1, self.place[..., None].expand(-1, -1, made.shape[2]))


def mended(batch: Batch, slots: np.ndarray, generated: Sequence[Tensor]) -> Batch:
    """``batch`` with ``slots[i, v]`` new neighbours of node v of replica i, whose features are ``generated[i]`` in order of v."""
    clients = [_extended(client, count[: client.num_nodes]) for client, count in zip(batch.clients, slots, strict=True)]
    most = max(len(rows) for rows in generated)
    if not most:
        return batch
    result = Batch(clients, batch.dtype, batch.device, batch.feature_dtype)
    dense = torch.zeros(batch.size, most + 1, batch.features.shape[2], dtype=batch.dtype, device=batch.device)
    place = np.full((batch.size, result.nodes), most)
    for i, (rows, client) in enumerate(zip(generated, batch.clients, strict=True)):
        dense[i, : len(rows)] = rows
        place[i, client.num_nodes : client.num_nodes + len(rows)] = np.arange(len(rows))
    result.features = MendedFeatures(result.features, dense, torch.from_numpy(place).to(batch.device))
    return result


def _extended(client: ClientGraph, count: np.ndarray) -> ClientGraph:
    """``client`` with ``count[v]`` featureless neighbours of node v after its own nodes; they have no label and no mask."""
    real = np.repeat(np.arange(client.num_nodes), count)
    made = client.num_nodes + np.arange(real.size)
    edges = np.concatenate([client.edges, np.stack([real, made]), np.stack([made, real])], 1)
    if sp.issparse(client.features):
        features = client.features.tocsr(copy=True)
        features.resize(client.num_nodes + real.size, features.shape[1])
    else:
        features = np.concatenate([client.features, np.zeros((real.size, client.features.shape[1]), client.features.dtype)])
    masks = {name: np.append(getattr(client, name), np.zeros(real.size, dtype=bool)) for name in ("train", "val", "test")}
    return ClientGraph(
        nodes=np.append(client.nodes, np.full(real.size, -1)),
        features=features,
        edges=np.ascontiguousarray(edges[:, np.lexsort((edges[1], edges[0]))]),
        labels=np.append(client.labels, np.full(real.size, -1)),
        present=None if client.present is None else np.append(client.present, np.ones(real.size, dtype=bool)),
        **masks,
    )
