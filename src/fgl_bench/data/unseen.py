"""Clients that are left out of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fgl_bench.data.graph import Federation
from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import generator


def leave_out(federation: Federation, count: int) -> Federation:
    """Return the federation without ``count`` clients, which are its ``unseen`` federation; they are drawn once per seed.

    Raises:
        UserError: no client that is left has a training, a validation or a test node.
    """
    if not count:
        return federation
    clients = federation.num_clients
    unseen = np.isin(np.arange(clients), generator(federation.seed, "unseen").choice(clients, count, replace=False))
    seen = _part(federation, ~unseen)
    if not all(any(getattr(client, mask).any() for client in seen.observed) for mask in ("train", "val", "test")):
        raise UserError("unseen_clients: no client that is left has a training, a validation and a test node; leave out fewer")
    return replace(seen, unseen=replace(_part(federation, unseen), unseen_numbers=tuple(np.flatnonzero(unseen).tolist())))


def _part(federation: Federation, chosen: np.ndarray) -> Federation:
    """Return the federation of some clients, with the edges between them."""
    numbers = np.flatnonzero(chosen)
    clients = tuple(federation.clients[i] for i in numbers)
    observed = clients if federation.observed is federation.clients else tuple(federation.observed[i] for i in numbers)
    nodes = np.concatenate([client.nodes for client in clients])
    inside = np.isin(federation.cross_edges, nodes).all(axis=0)
    return replace(federation, clients=clients, observed=observed, cross_edges=np.ascontiguousarray(federation.cross_edges[:, inside]))
