"""What can be measured of a federation before anything is trained: numbers that may explain when federation helps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgl_bench.data.graph import ClientGraph, Federation, strata

NAMES = {
    "label_skew": "label skew", "homophily": "homophily", "edge_cut": "edge cut", "train_nodes": "training nodes a client",
    "clients": "clients",
}  # fmt: skip


def properties(federations: Sequence[Federation]) -> dict[str, float]:
    """Means over the repetitions.

    * ``label_skew``: total variation distance of a client's shares of classes from those of all clients, mean weighted by
      labelled nodes; 0 where all clients have the same shares.
    * ``homophily``: share of the clients' edges between labelled nodes that join nodes of one class.
    * ``edge_cut``: share of edges between different clients' nodes, which nobody trains on.
    * ``train_nodes``: training nodes a client.
    """
    each = [of_one(federation) for federation in federations]
    return {name: float(np.mean([one[name] for one in each])) for name in NAMES}


def of_one(federation: Federation) -> dict[str, float]:
    clients = federation.clients
    inside = sum(client.edges.shape[1] for client in clients)
    cut = federation.cross_edges.shape[1]
    alike = [same_class(client) for client in clients]
    joined = sum(count for _, count in alike)
    return {
        "label_skew": label_skew(np.stack([class_counts(client, federation.num_classes) for client in clients])),
        "homophily": sum(same for same, _ in alike) / joined if joined else 0.0,
        "edge_cut": cut / (inside + cut) if inside + cut else 0.0,
        "train_nodes": float(np.mean([client.train.sum() for client in clients])),
        "clients": float(len(clients)),
    }


def class_counts(client: ClientGraph, classes: int) -> np.ndarray:
    labels = strata(client.labels)
    return np.bincount(labels[labels >= 0], minlength=classes)


def label_skew(counts: np.ndarray) -> float:
    """Of counts ``[C, Y]``."""
    sizes = counts.sum(1)
    if not sizes.sum():
        return 0.0
    shares = counts / np.maximum(sizes, 1)[:, None]
    distance = np.abs(shares - counts.sum(0) / sizes.sum()).sum(1) / 2
    return float((distance * sizes).sum() / sizes.sum())


def same_class(client: ClientGraph) -> tuple[int, int]:
    """Edges that join nodes of one class, and edges between labelled nodes."""
    ends = strata(client.labels)[client.edges]
    known = (ends >= 0).all(0)
    return int((known & (ends[0] == ends[1])).sum()), int(known.sum())
