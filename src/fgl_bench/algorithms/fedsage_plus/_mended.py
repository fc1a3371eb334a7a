"""Clients' graphs augmented with final generated neighbors (FedSage+)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, InputFeatures, mean_operator
from fgl_bench.engine.linear import ragged
from fgl_bench.engine.network import Network
from fgl_bench.engine.transfer import put
from fgl_bench.models.graphsage import Convolved, GraphSAGE


def scattered(rows: Tensor, index: Tensor, count: int) -> Tensor:
    """Return ``[k, count, h]`` with row ``index[i, j]`` equal to ``rows[i, j]`` and zeros elsewhere."""
    return rows.new_zeros(len(rows), count, rows.shape[2]).scatter(1, index[..., None].expand_as(rows), rows)


class AugmentedFeatures(Convolved):
    """Input features of augmented graphs: original features of real nodes, dense features of generated nodes.

    Args:
        real: ``[k, n, F]``, zero for generated nodes.
        means: of some real nodes, the sum of their generated neighbors divided by their degree.
        generated: features of generated nodes.
    """

    def __init__(self, real: InputFeatures, means: DenseRows, generated: DenseRows):
        self.real, self.means, self.generated, self.shape = real, means, generated, real.shape
        self.nodes = torch.cat([means.nodes, generated.nodes], 1)

    def select(self, rows: Sequence[int]) -> AugmentedFeatures:
        return AugmentedFeatures(self.real.select(rows), self.means.select(rows), self.generated.select(rows))

    def __matmul__(self, weight: Tensor) -> Tensor:
        return self.real @ weight + scattered(self.generated @ weight, self.generated.nodes, self.shape[1] + 1)[:, :-1]

    def convolved(self, batch: Batch, weight: Tensor) -> Tensor:
        """As :class:`Convolved`: a generated node has one real neighbor; a real node adds the mean of its generated neighbors."""
        near, own = weight.chunk(2, -1)
        real_near, real_own = (self.real @ weight).chunk(2, -1)
        products = torch.cat([self.means @ near, self.generated @ own], 1)
        return batch.operator(mean_operator) @ real_near + real_own + scattered(products, self.nodes, self.shape[1] + 1)[:, :-1]


@dataclass
class DenseRows:
    """Feature rows of some nodes.

    Attributes:
        values: ``[k, m, F]``; zeros in padding.
        nodes: ``[k, m]``, nodes of the rows; the number of nodes in padding.
        counts: rows of each replica.
    """

    values: Tensor
    nodes: Tensor
    counts: list[int]

    @classmethod
    def of(cls, blocks: Sequence[Tensor], nodes: Sequence[np.ndarray], end: int) -> DenseRows:
        """Stack every replica's rows ``[m_i, F]`` and their nodes, of ``end`` nodes."""
        counts = [len(block) for block in blocks]
        values = blocks[0].new_zeros(len(blocks), max(counts), blocks[0].shape[1])
        index = np.full((len(blocks), max(counts)), end)
        for i, count in enumerate(counts):
            values[i, :count], index[i, :count] = blocks[i], nodes[i]
        return cls(values, put(index, values.device), counts)

    def select(self, rows: Sequence[int]) -> DenseRows:
        index = put(rows, self.nodes.device)
        return DenseRows(self.values[index], self.nodes[index], [self.counts[i] for i in rows])

    def __matmul__(self, weight: Tensor) -> Tensor:
        """Return the rows times ``weight [k, F, h]``, ``[k, m, h]``."""
        return ragged(self.values, weight, self.counts)


def augmented(batch: Batch, slots: np.ndarray, generated: Sequence[Tensor], owners: Sequence[np.ndarray | None] = (None,)) -> list[Batch]:
    """Return ``batch`` with ``slots[i, v]`` new neighbors of node v of replica i, with features ``generated[i]`` in order of v.

    Args:
        owners: for every graph to return ``[k, n]`` bool, the nodes whose generated neighbors have their own features; other generated
            neighbors have zeros and only contribute to means. None: all.
    """
    if not slots.any():
        return [batch] * len(owners)
    clients = [_extended(client, count[: client.num_nodes]) for client, count in zip(batch.clients, slots, strict=True)]
    whole, graphs = Batch(clients, batch.dtype, batch.device, batch.feature_dtype), []
    sums = [_means(*each) for each in zip(generated, slots, whole.degree, strict=True)]
    means = DenseRows.of(sums, [np.flatnonzero(count) for count in slots], whole.nodes)
    for chosen in owners:
        owned = [np.repeat(np.ones(count.shape, bool) if chosen is None else chosen[i], count) for i, count in enumerate(slots)]
        own = [rows if keep.all() else rows[put(np.flatnonzero(keep), rows.device)] for rows, keep in zip(generated, owned, strict=True)]
        places = [client.num_nodes + np.flatnonzero(keep) for client, keep in zip(batch.clients, owned, strict=True)]
        graph = copy(whole)
        graph.features, graph._derived = AugmentedFeatures(whole.features, means, DenseRows.of(own, places, whole.nodes)), {}
        graphs.append(graph)
    return graphs


def _means(rows: Tensor, count: np.ndarray, degree: Tensor) -> Tensor:
    """Return, for every node v with ``count[v]`` of the ``rows`` (in order of v), their sum divided by ``degree[v]``, ``[m, F]``."""
    has = np.flatnonzero(count)
    count, start = count[has], (np.cumsum(count) - count)[has]
    total = rows[put(start, rows.device)]
    for place in range(1, count.max(initial=0)):
        more = np.flatnonzero(count > place)
        total[put(more, rows.device)] += rows[put(start[more] + place, rows.device)]
    return total / degree[put(has, rows.device)][:, None]


def seen(model: Network, batch: Batch, mask: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return where generated neighbors affect the outputs of nodes ``mask [k, n]``: fully, and through means, ``[k, n]`` bool each.

    In GraphSAGE with L layers, their own first layer matters within L - 2 hops, and that of their real node within L - 1. Other
    backbones may use all of them.
    """
    masks = np.ones((2, *mask.shape), dtype=bool)
    if isinstance(model, GraphSAGE):
        for hops, kind in zip((model.layers - 2, model.layers - 1), masks, strict=True):
            for row, client, nodes in zip(kind, batch.clients, mask.cpu().numpy(), strict=True):
                row[:] = within(client, nodes, max(hops, 0))
    return masks[0], masks[1]


def within(client: ClientGraph, nodes: np.ndarray, hops: int) -> np.ndarray:
    """Return the nodes within ``hops`` hops of ``nodes [n]`` (bool), ``[n]`` bool."""
    reached = nodes
    for _ in range(hops):
        row, column = client.edges
        reached, before = reached.copy(), reached
        reached[row[before[column]]] = True
    return reached


def _extended(client: ClientGraph, count: np.ndarray) -> ClientGraph:
    """Return ``client`` with ``count[v]`` additional neighbors of node v, without features, labels and masks."""
    real = np.repeat(np.arange(client.num_nodes), count)
    new = client.num_nodes + np.arange(real.size)
    edges = np.concatenate([client.edges, np.stack([real, new]), np.stack([new, real])], 1)
    features: np.ndarray | sp.csr_matrix
    if not isinstance(client.features, np.ndarray):
        features = client.features.tocsr(copy=True)
        features.resize(client.num_nodes + real.size, features.shape[1])  # type: ignore[call-arg, arg-type]  # the stubs take Never
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
