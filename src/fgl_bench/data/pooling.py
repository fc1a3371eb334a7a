"""All clients' nodes as one client, for training without federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.federation import ServerFederation
from fgl_bench.data.graph import ClientGraph, Features, Federation


@dataclass(frozen=True)
class Pooled(Federation):
    """A federation of one client that holds the nodes of others.

    Attributes:
        members: the clients whose nodes were pooled; scores are still recorded per member.
    """

    members: tuple[ClientGraph, ...] = ()

    @property
    def scored(self) -> tuple[ClientGraph, ...]:
        return self.members


@dataclass(frozen=True)
class PooledServerFederation(ServerFederation):
    """A federation of one client that holds the training nodes of others; the server's nodes are scored as ever.

    Attributes:
        members: the clients whose nodes were pooled.
    """

    members: tuple[ClientGraph, ...] = ()

    @property
    def scored(self) -> tuple[ClientGraph, ...]:
        return (self.server,) * len(self.members)


def pool(federation: Federation, crossing: bool) -> Pooled | PooledServerFederation:
    """``federation`` with all nodes in one client; what a server holds stays with it.

    A node that several clients hold is a training node if it is one anywhere, and is then scored nowhere (else the test would
    leak). Nodes that nobody holds stay away.

    Args:
        crossing: with the edges between clients (where both ends are known while training), or the clients' graphs side by side.
    """
    training = np.unique(np.concatenate([client.example_ids[client.train] for client in federation.clients]))
    members = tuple(_without(client, training) for client in federation.clients)
    edges = federation.cross_edges if crossing else federation.cross_edges[:, :0]
    clean = (_merge(federation.clients, edges),)
    same = all(seen is whole for seen, whole in zip(federation.observed, federation.clients, strict=True))
    observed = clean if same else (_merge(federation.observed, edges),)
    given: dict[str, Any] = {field.name: getattr(federation, field.name) for field in fields(Federation)}
    given |= {"clients": clean, "observed": observed, "cross_edges": federation.cross_edges[:, edges.shape[1] :]}
    if isinstance(federation, ServerFederation):
        return PooledServerFederation(**given, server=federation.server, score_trained=federation.score_trained, members=federation.clients)
    return Pooled(**given, members=members)


def _without(client: ClientGraph, removed: np.ndarray) -> ClientGraph:
    """``client`` whose examples ``removed`` are for neither validation nor test."""
    here = np.isin(client.example_ids, removed)
    return replace(client, val=client.val & ~here, test=client.test & ~here)


def _merge(clients: Sequence[ClientGraph], crossing: np.ndarray) -> ClientGraph:
    """One graph of all nodes, in the order of their global ids; ``crossing`` are further edges, by global ids."""
    every = np.concatenate([client.nodes for client in clients])
    nodes, first = np.unique(every, return_index=True)
    examples = np.concatenate([client.example_ids for client in clients])
    ids, labeled = np.unique(examples, return_index=True)
    known = {name: _any(examples, ids, [getattr(client, name) for client in clients]) for name in ("train", "val", "test")}
    present = None
    if any(client.present is not None for client in clients):
        present = _any(every, nodes, [np.ones(c.num_nodes, bool) if c.present is None else c.present for c in clients])
    across = np.searchsorted(nodes, crossing)
    if present is not None:
        across = across[:, present[across].all(0)]
    edges = np.concatenate([*(np.searchsorted(nodes, client.nodes)[client.edges] for client in clients), across], 1)
    row, column = np.divmod(np.unique(edges[0] * nodes.size + edges[1]), nodes.size)
    parts: list[Any] = [client.features for client in clients]
    features: Features = sp.vstack(parts).tocsr() if any(sp.issparse(part) for part in parts) else np.concatenate(parts)
    whole = ClientGraph(
        nodes=nodes,
        features=features[first],
        edges=np.stack([row, column]),
        labels=np.concatenate([client.labels for client in clients])[labeled],
        train=known["train"],
        val=known["val"] & ~known["train"],
        test=known["test"] & ~known["train"] & ~known["val"],
        present=present,
    )
    return clients[0].pooled(whole, clients, ids)


def _any(every: np.ndarray, nodes: np.ndarray, masks: Sequence[np.ndarray]) -> np.ndarray:
    """``[N]``: in the mask of at least one client."""
    return np.isin(nodes, every[np.concatenate(masks)])
