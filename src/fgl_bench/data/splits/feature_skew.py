"""Feature skew: clients with graphs of successive features (OpenFGL's simulation of this name)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.checks import check_choice
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.topology_skew import _Segments


@dataclass
class FeatureSkew(_Segments):
    """Sorted by the features.

    Attributes:
        by: the ``mean`` of all entries of a graph's feature matrix, as in OpenFGL, which is a constant for one-hot features; or the
            first principal ``component`` of the graphs' mean feature vectors.
    """

    reads_features: ClassVar[bool] = True
    advice: ClassVar[str] = " (with one-hot features, split.by=component)"

    by: str

    def statistic(self, graph: Graph) -> np.ndarray:
        check_choice("split.by", self.by, ("mean", "component"))
        features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
        if self.by == "mean":
            return features.mean(1)
        centered = features - features.mean(0)
        _, vectors = np.linalg.eigh(centered.T @ centered)
        axis = vectors[:, -1]
        return centered @ (axis * np.sign(axis[np.abs(axis).argmax()]))
