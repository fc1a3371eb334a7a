"""What natural federations share: several owners' graphs put side by side as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import Graph
from fgl_bench.errors import UserError

Part = tuple[sp.spmatrix | np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def check_owners(key: str, chosen: Sequence[str], known: Sequence[str]) -> list[str]:
    """``chosen`` as a list; raises UserError unless it names at least one of ``known``, and none twice."""
    names = list(chosen)
    if not names or len(set(names)) < len(names) or not set(names) <= set(known):
        raise UserError(f"{key}={names}: must be different ones of {', '.join(known)}")
    return names


def side_by_side(dataset: Dataset, parts: Sequence[Part], num_classes: int | None = None) -> Graph:
    """One graph of features, edge rows, edge columns and labels of every owner, in the order given; no edge joins two owners."""
    features, rows, cols, labels = zip(*parts, strict=True)
    sizes = [len(part) for part in labels]
    starts = np.cumsum([0, *sizes[:-1]])
    return dataset.graph(
        sp.csr_matrix(sp.vstack([sp.csr_matrix(part) for part in features])),
        np.concatenate([row.astype(np.int64) + start for row, start in zip(rows, starts, strict=True)]),
        np.concatenate([col.astype(np.int64) + start for col, start in zip(cols, starts, strict=True)]),
        np.concatenate(labels),
        num_classes,
        owner=np.repeat(np.arange(len(sizes)), sizes),
    )
