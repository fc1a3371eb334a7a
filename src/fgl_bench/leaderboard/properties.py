"""Properties of a federation before training that may explain when federation helps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgl_bench.data.graph import ClientGraph, Federation, strata

NAMES = {
    "label_skew": "label skew", "homophily": "homophily", "edge_cut": "edge cut", "train_nodes": "training nodes a client",
    "clients": "clients",
}  # fmt: skip


def properties(federations: Sequence[Federation]) -> dict[str, float]:
    """Return means over the repetitions.

    * * ``label_skew``: total variation distance between the class shares of a client and of all clients, weighted by
      labeled nodes; 0 if all clients have the same shares.
    * * ``homophily``: share of edges between labeled nodes of a client that join nodes of one class.
    * * ``edge_cut``: share of edges between nodes of different clients, which are not used in training.
    * * ``train_nodes``: training nodes per client.
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
    """Return the label skew of counts ``[C, Y]``."""
    sizes = counts.sum(1)
    if not sizes.sum():
        return 0.0
    shares = counts / np.maximum(sizes, 1)[:, None]
    distance = np.abs(shares - counts.sum(0) / sizes.sum()).sum(1) / 2
    return float((distance * sizes).sum() / sizes.sum())


def same_class(client: ClientGraph) -> tuple[int, int]:
    """Count edges that join nodes of one class, and edges between labeled nodes."""
    ends = strata(client.labels)[client.edges]
    known = (ends >= 0).all(0)
    return int((known & (ends[0] == ends[1])).sum()), int(known.sum())
