"""GCFL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fgl_bench.algorithms.gcfl._clustering import ClusteredAveraging, Evidence


@dataclass
class GCFL(ClusteredAveraging):
    """Clustered averaging with cuts along update directions: ``w_ij = 1 + cos(Delta_i, Delta_j)`` (Xie et al., NeurIPS 2021)."""

    by_clients: ClassVar[bool] = True

    def likeness(self, members: np.ndarray, evidence: Evidence) -> np.ndarray:
        product = evidence["product"][np.ix_(members, members)]
        norm = np.sqrt(product.diagonal().clip(min=0))
        return 1 + np.clip(product / np.maximum(np.outer(norm, norm), 1e-12), -1, 1)
