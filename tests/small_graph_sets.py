"""Small sets of graphs, and federations of graphs and of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from fgl_bench.data.canonical import canonical_edges
from fgl_bench.data.graph import Federation
from fgl_bench.data.graph_set import GraphSet
from fgl_bench.tasks.graph import GraphClassification
from fgl_bench.tasks.link import divided
from tests.reference.small import small_federation


def graph_set(count: int = 30, seed: int = 0, features: int = 5, classes: int = 3) -> GraphSet:
    """Random graphs of 2 to 9 nodes; some nodes have no edge."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, 10, count)
    starts = np.cumsum(sizes) - sizes
    pairs = np.concatenate([start + draw.integers(0, size, (2, size)) for start, size in zip(starts, sizes, strict=True)], 1)
    labels = draw.permutation(np.arange(count) % classes)
    graph = np.repeat(np.arange(count), sizes)
    x = (draw.normal(size=(sizes.sum(), features)) + labels[graph, None]).astype(np.float32)
    return GraphSet("small", x, canonical_edges(*pairs, sizes.sum()), labels, classes, graph=graph)


def of_graphs(seed: int = 0, clients: int = 3, count: int = 30) -> Federation:
    """A federation of graphs; clients differ in size, and the masks are random."""
    whole, draw = graph_set(count, seed), np.random.default_rng(seed + 100)
    cuts = np.sort(draw.choice(np.arange(5, count - 5, 3), clients - 1, replace=False))
    parts = [np.sort(part) for part in np.split(draw.permutation(count), cuts)]
    bare, cross = TASK.clients(whole, parts)
    kinds = [draw.permutation(np.arange(len(part)) % 4) for part in parts]
    masked = tuple(with_masks(client, kind < 2, kind == 2, kind == 3) for client, kind in zip(bare, kinds, strict=True))
    return Federation("small", seed, whole.num_classes, whole.num_features, masked, masked, cross, "none")


def with_masks(client: Any, train: np.ndarray, val: np.ndarray, test: np.ndarray) -> Any:
    return type(client)(**{**vars(client), "train": train, "val": val, "test": test})


def of_pairs(seed: int = 0, clients: int = 3) -> Federation:
    """A federation whose clients predict links."""
    nodes, start, out = small_federation(seed, clients=clients), 0, []
    for i, client in enumerate(nodes.clients):
        out.append(divided(client, (0.6, 0.2, 0.2), np.random.default_rng(10 * seed + i), start))
        start += out[-1].labels.size
    own = tuple(out)
    return Federation("small", seed, 2, nodes.num_features, own, own, nodes.cross_edges, "none", metric="auc")


TASK = GraphClassification("sum", 4, "mlp")
