"""FedGCN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Federating
from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.data.pooling import pool
from fgl_bench.engine.batch import Batch, Operator, adjacency, gcn_operator
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.errors import Range, Unsuited, UserError, between
from fgl_bench.models.base import Around, Backbone
from fgl_bench.models.gcn import GCN


@dataclass
class FedGCN(FedAvg, Federating):
    """FedAvg on neighborhoods completed once before training (Yao et al., NeurIPS 2023, algorithm 1 and equations 3 to 5).

    With ``S = D^-1/2 (A + I) D^-1/2`` of the graph of all clients, client k uploads its part of the rows of S X for its own nodes
    V_k and their neighbors N(V_k): the sum over its own nodes. The server adds the parts. With ``hops=1`` client k downloads
    the rows for V_k and uses them as ``S X`` in the first convolution; the later convolutions propagate by the entries of S between
    its own nodes. With ``hops=2`` it downloads the rows for V_k and N(V_k) and propagates by all entries of S in its nodes' rows, so that a
    GCN of two layers has the logits that it has on the whole graph. Then FedAvg trains.

    Resolutions: the authors' code passes no sums, but gives each client the features and all edges of the nodes within ``hops`` hops
    and computes degrees in this subgraph (``exchange=nodes``, for any backbone). It averages clients equally: ``agg_weight=uniform``.
    Homomorphic encryption is neither simulated nor counted. A row is sent with one more scalar, its node id or its degree.
    Remote nodes count in no statistic of a client. With ``split.test=server`` the server's models are scored on the whole graph.

    Attributes:
        hops: 0, 1 or 2 hops; 0 is FedAvg.
        exchange: ``sums`` or ``nodes``.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn"}
    replayable: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"hops": between(0, 2)}

    hops: int
    exchange: Literal["sums", "nodes"]

    def federate(self, federation: Federation) -> Federation:
        if any(client.folder is not None for client in federation.clients):
            raise UserError("out_of_core=true: algorithm=fedgcn makes new graphs, in memory; set out_of_core=false")
        if not self.hops:
            return federation
        whole, build = pool(federation, crossing=True), EXCHANGES[self.exchange]
        reach = [self._reach(whole.clients[0], client) for client in federation.clients]
        wanted = sum(near.astype(int) for near in reach)

        def completed(union: ClientGraph, clients: tuple[ClientGraph, ...]) -> tuple[ClientGraph, ...]:
            prepared = build(union)
            return tuple(prepared(client, near, wanted > near) for client, near in zip(clients, reach, strict=True))

        clients = completed(whole.clients[0], federation.clients)
        same = federation.observed is federation.clients
        return replace(federation, clients=clients, observed=clients if same else completed(whole.observed[0], federation.observed))

    def _reach(self, union: ClientGraph, client: ClientGraph) -> np.ndarray:
        """Return the nodes ``[N]`` (bool) of the union of which the client downloads a row."""
        near, neighbors = np.isin(union.nodes, client.nodes), adjacency(union)
        for _ in range(self.hops - (self.exchange == "sums")):
            near = near | (neighbors @ near > 0)
        return near

    def backbone(self, model: Backbone) -> Backbone:
        if not self.hops or self.exchange == "nodes":
            return model
        if isinstance(model, Around):  # a task's head
            whole = copy(model)
            whole.inner = self.backbone(model.inner)
            return whole
        if not isinstance(model, GCN):
            raise Unsuited("needs GCN, whose first convolution is linear in the sums, or algorithm.exchange=nodes")
        return FromSums(model)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        shape = (len(setting.seeds), setting.num_clients)
        scalars = [(each.sent, each.obtained) if isinstance(each, Completed) else (0, 0) for each in setting.batch.clients]
        self.bytes_before = 4 * np.array(scalars).reshape(*shape, 2).sum(1)


@dataclass(frozen=True)
class Completed(ClientGraph):
    """A client's graph with remote nodes, which are not ``present`` and have no labels.

    Attributes:
        degree: ``[n]`` degrees in the graph of all clients, without self loops.
        sums: True if the features are rows of S X.
        sent, obtained: scalars uploaded and downloaded before training.
    """

    degree: np.ndarray = field(kw_only=True)
    sums: bool = field(kw_only=True)
    sent: int = field(kw_only=True)
    obtained: int = field(kw_only=True)


Build = Callable[[ClientGraph, np.ndarray, np.ndarray], Completed]


def with_sums(union: ClientGraph) -> Build:
    """Return a function of a client, the nodes ``[N]`` that it downloads and those that others download; it gives the completed client."""
    features, neighbors = (gcn_operator(union) @ union.features).astype(np.float32), adjacency(union)

    def build(client: ClientGraph, near: np.ndarray, elsewhere: np.ndarray) -> Completed:
        own = np.isin(union.nodes, client.nodes)
        edges = union.edges[:, own[union.edges].any(0)]
        rows = (own | (neighbors @ own > 0)).sum(), near.sum()
        sent, obtained = (int(count) * (features.shape[1] + 1) for count in rows)
        return completed(union, client, near, edges, features, sums=True, sent=sent, obtained=obtained)

    return build


def with_nodes(union: ClientGraph) -> Build:
    """Return a function as :func:`with_sums` does; clients exchange features and edges."""

    def build(client: ClientGraph, near: np.ndarray, elsewhere: np.ndarray) -> Completed:
        remote = near & ~np.isin(union.nodes, client.nodes)
        unknown = int(remote[union.edges].all(0).sum())  # ends of edges: both directions of each are listed
        sent, obtained = (int(count) * (union.features.shape[1] + 1) for count in ((elsewhere & near & ~remote).sum(), remote.sum()))
        return completed(union, client, near, union.edges, union.features, sums=False, sent=sent, obtained=obtained + unknown)

    return build


EXCHANGES: dict[str, Callable[[ClientGraph], Build]] = {"sums": with_sums, "nodes": with_nodes}


def completed(union: ClientGraph, client: ClientGraph, near: np.ndarray, edges: np.ndarray, features: Any, **facts: Any) -> Completed:
    """Return ``client`` with all nodes ``near [N]`` of the union and the ``edges [2, E]`` between them."""
    nodes = np.flatnonzero(near)
    place = np.searchsorted(union.nodes[nodes], client.nodes)
    masks: dict[str, Any] = {name: _placed(getattr(client, name), place, nodes.size) for name in ("train", "val", "test")}
    present = np.ones(client.num_nodes, dtype=bool) if client.present is None else client.present
    return Completed(
        nodes=union.nodes[nodes],
        features=features[nodes],
        edges=np.searchsorted(nodes, edges[:, near[edges].all(0)]),
        labels=_placed(client.labels, place, nodes.size, -1 if client.labels.ndim == 1 else 0),
        present=_placed(present, place, nodes.size),
        degree=np.bincount(union.edges[0], minlength=union.num_nodes)[nodes],
        **masks,
        **facts,
    )


def _placed(values: np.ndarray, place: np.ndarray, count: int, other: Any = 0) -> np.ndarray:
    """Return ``[count, ...]`` with the values at ``place`` and ``other`` elsewhere."""
    out = np.full((count, *values.shape[1:]), other, dtype=values.dtype)
    out[place] = values
    return out


def union_operator(client: ClientGraph) -> sp.csr_matrix:
    """Return the entries of S that the client knows, ``[n, n]``."""
    scale = sp.diags(1 / np.sqrt(cast(Completed, client).degree + 1))
    return (scale @ (adjacency(client) + sp.eye(client.num_nodes)) @ scale).tocsr()


class FromSums(Around):
    """A GCN whose input features are already propagated; on other graphs, such as a server's, the GCN itself."""

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        if not _sums(batch):
            return self.inner.first(parameters, batch)
        return batch.features @ parameters["conv0.weight"] + parameters["conv0.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        shown = cast(Batch, UnionBatch(batch)) if _sums(batch) else batch
        return self.inner.forward(parameters, shown, first, dropout)


def _sums(batch: Batch) -> bool:
    first = batch.clients[0] if isinstance(batch, Batch) else None
    return isinstance(first, Completed) and first.sums


class UnionBatch:
    """Stand-in for a batch whose later convolutions propagate by S of the graph of all clients."""

    def __init__(self, batch: Batch):
        self._batch = batch

    def operator(self, build: Operator) -> BlockSparse:
        return self._batch.operator(union_operator if build is gcn_operator else build)
