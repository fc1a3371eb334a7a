"""What all datasets share: their name, default ratios, metric and the largest-component switch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.canonical import canonical_edges, canonical_features, largest_component
from fgl_bench.data.checks import METRICS, check_choice, check_graph, check_ratios
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import data_root
from fgl_bench.errors import UserError


@dataclass
class Dataset:
    """Base of all datasets; a new one implements :meth:`read`.

    Attributes:
        name: as in ``conf/dataset``.
        ratios: default [train, val, test]; ``split.ratios`` overrides it.
        metric: ``accuracy`` or ``auc``.
        largest_component: keep only the largest connected component.
    """

    name: str
    ratios: list[float]
    metric: str
    largest_component: bool

    def load(self, data_dir: str | None) -> Graph:
        """The canonical graph.

        Args:
            data_dir: folder of raw files; None means FGL_BENCH_DATA or ``data``. It is written only to download.

        Raises:
            UserError: a raw file is absent and cannot be downloaded, or is damaged.
        """
        check_choice("dataset.metric", self.metric, METRICS)
        check_ratios(self.ratios, "dataset.ratios")
        graph = check_graph(self.read(data_root(data_dir)), f"dataset={self.name}")
        return largest_component(graph) if self.largest_component else graph

    def read(self, root: Path) -> Graph:
        """The whole graph from the raw files below ``root``; :meth:`graph` helps to build it."""
        raise NotImplementedError  # abstract

    def graph(
        self,
        features: np.ndarray | sp.spmatrix,
        row: np.ndarray,
        col: np.ndarray,
        labels: np.ndarray,
        num_classes: int | None = None,
        owner: np.ndarray | None = None,
    ) -> Graph:
        """A canonical graph of raw parts; classes are counted from the labels where not given."""
        nodes = features.shape[0]
        outside = row.size > 0 and (min(row.min(), col.min()) < 0 or max(row.max(), col.max()) >= nodes)
        if outside:
            raise UserError(f"dataset={self.name}: an edge names a node outside 0..{nodes - 1}")
        labels = np.asarray(labels, dtype=np.int64)
        return Graph(
            name=self.name,
            features=canonical_features(features),
            edges=canonical_edges(row, col, nodes),
            labels=labels,
            num_classes=int(labels.max(initial=-1)) + 1 if num_classes is None else num_classes,
            metric=self.metric,
            owner=owner,
        )

    def choose(self, table: dict[str, str]) -> str:
        """``table[self.name]``, or a UserError that lists the names."""
        check_choice("dataset.name", self.name, table)
        return table[self.name]
