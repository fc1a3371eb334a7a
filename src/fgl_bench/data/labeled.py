"""Clients reduced to the nodes that have a label, for methods that ask nothing of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fgl_bench.data.graph import ClientGraph


@dataclass(frozen=True)
class LabeledNodes(ClientGraph):
    """The nodes of a client that have a label; labels and masks are theirs. There are no features and no edges.

    What is derived from the features (:mod:`fgl_bench.engine.derived`) is made of the whole client, and kept for these nodes.

    Attributes:
        whole: the client.
        rows: ``[m]`` where these nodes are among its own.
    """

    whole: ClientGraph = field(kw_only=True)
    rows: np.ndarray = field(kw_only=True)

    @classmethod
    def of(cls, whole: ClientGraph) -> LabeledNodes:
        rows = np.flatnonzero(whole.labels >= 0)
        own = {name: getattr(whole, name)[rows] for name in ("nodes", "labels", "train", "val", "test")}
        features, edges = np.empty((0, whole.features.shape[1]), np.float32), np.empty((2, 0), np.int64)
        return cls(features=features, edges=edges, whole=whole, rows=rows, **own)

    @property
    def folder(self) -> Path | None:
        return self.whole.folder


def reducible(clients: Sequence[ClientGraph]) -> bool:
    """Whether there are nodes to leave out: of clients in files with one label a node, some without."""
    filed = clients[0].folder is not None and clients[0].labels.ndim == 1
    return filed and any((client.labels < 0).any() for client in clients)
