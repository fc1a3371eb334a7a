"""Random client graphs of any size for the tests of the engine and the methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.graph import ClientGraph, Federation


def make_client(size: int, edges: float = 0.3, *, seed: int = 0, features: int = 5, classes: int = 3, sparse: bool = True) -> ClientGraph:
    """A client of ``size`` nodes, each pair connected with probability ``edges``; masks in turn along a random order."""
    rng = np.random.default_rng([seed, size])
    upper = np.triu(rng.random((size, size)) < edges, 1)
    values = rng.normal(size=(size, features)) * (rng.random((size, features)) < 0.5)
    role = rng.permutation(size) % 3
    return ClientGraph(
        nodes=np.arange(size),
        features=sp.csr_matrix(values) if sparse else values,
        edges=np.stack(np.nonzero(upper | upper.T)).astype(np.int64),
        labels=rng.integers(classes, size=size),
        train=role == 0,
        val=role == 1,
        test=role == 2,
    )


def from_edges(
    pairs: Sequence[tuple[int, int]], labels: Sequence[int], train: Sequence[int] = (), features: np.ndarray | None = None
) -> ClientGraph:
    """A client given by hand: undirected ``pairs``, labels, training nodes; the others are test nodes."""
    size, mask = len(labels), np.zeros(len(labels), dtype=bool)
    mask[list(train)] = True
    both = sorted({*pairs, *((v, u) for u, v in pairs)})
    edges = np.array(both, dtype=np.int64).reshape(-1, 2).T.copy()
    features = np.eye(size) if features is None else features
    return ClientGraph(np.arange(size), features, edges, np.array(labels), mask, np.zeros_like(mask), ~mask)


def permuted(client: ClientGraph, order: np.ndarray) -> ClientGraph:
    """The same client with node ``order[i]`` in place i."""
    place = np.argsort(order)
    edges = place[client.edges]
    edges = edges[:, np.lexsort(edges[::-1])]
    arrays = {name: getattr(client, name)[order] for name in ("nodes", "features", "labels", "train", "val", "test")}
    return replace(client, edges=edges, **arrays)


def federation(clients: Sequence[ClientGraph], *, classes: int = 3, seed: int = 0, metric: str = "accuracy") -> Federation:
    """These clients as one repetition."""
    clients = tuple(clients)
    return Federation(
        "by hand", seed, classes, clients[0].features.shape[1], clients, clients, np.zeros((2, 0), np.int64), "by hand", metric
    )
