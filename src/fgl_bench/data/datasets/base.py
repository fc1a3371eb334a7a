"""The base of all datasets, and of natural federations: several owners' graphs side by side as one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.canonical import canonical_edges, canonical_features, largest_component, row_normalized
from fgl_bench.data.checks import METRICS, check_choice, check_graph, check_ratios
from fgl_bench.data.graph import Features, Graph
from fgl_bench.data.raw import MOST_FEATURES, data_root, fetch, present
from fgl_bench.data.storage import Disk, name_of, update
from fgl_bench.errors import UserError

Owned = tuple[sp.spmatrix | np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Features, edge rows, edge columns and labels of one owner."""

NOT_CONTENT = ("name", "ratios", "metric", "largest_component", "normalize_features")


@dataclass
class Dataset:
    """Base of all datasets; a new one implements :meth:`read`.

    Attributes:
        name: as in ``conf/dataset``.
        ratios: default [train, val, test]; ``split.ratios`` overrides it.
        metric: the test score: accuracy, auc, macro_f1 or another name in ``METRICS`` of ``data/checks.py``.
        largest_component: keep only the largest connected component.
        by_hand: the content of files that nobody publishes, for the message that they are absent.
        tasks: names of the tasks that its labels, or its edges, are for.
        own_masks: masks in the data are the user's, so that a split that does not take them is worth a line.
        normalize_features: divide every node's features by their sum; nodes without features keep zeros, and a sum of 0 or less is refused.
            Equal to PyG's ``NormalizeFeatures`` where the smallest feature is 0 and no sum is below 1 (PyG subtracts the smallest feature
            of all first, and divides by at least 1).
    """

    tasks: ClassVar[tuple[str, ...]] = ("node", "link")
    own_masks: ClassVar[bool] = False
    by_hand: ClassVar[str] = ""

    name: str
    ratios: list[float]
    metric: str
    largest_component: bool
    normalize_features: bool = field(default=False, kw_only=True)

    def load(self, data_dir: str | None, keep_in: str | Path | None = None) -> Graph:
        """The canonical graph.

        Args:
            data_dir: folder of raw files; None means FGL_BENCH_DATA or ``data``. It is written only to download.
            keep_in: folder below which features and edges are kept in files of their own, mapped; None keeps them in memory.

        Raises:
            UserError: a raw file is absent and cannot be downloaded, or is damaged.
        """
        check_choice("dataset.metric", self.metric, METRICS)
        check_ratios(self.ratios, "dataset.ratios")
        root, cache = data_root(data_dir), None if keep_in is None else Path(os.path.expanduser(keep_in))
        if cache is not None and not self.largest_component and not self.normalize_features:
            keys = {key: value for key, value in asdict(self).items() if key not in NOT_CONTENT}
            graph = self.stream(root, Disk(cache / f"graph_{self.name}_{name_of(type(self).__name__, keys, self.source(root))}"))
            if graph is not None:
                return graph
        graph = check_graph(self.read(root), f"dataset={self.name}")
        graph = largest_component(graph) if self.largest_component else graph
        graph = replace(graph, features=self.scaled(graph.features, root))
        return graph if cache is None else stored(graph, cache)

    def scaled(self, features: Features, root: Path) -> Features:
        """Raw features ``[N, F]``, of this graph or of new nodes, as clients get them."""
        return row_normalized(features) if self.normalize_features else features

    def stream(self, root: Path, disk: Disk) -> Graph | None:
        """The checked graph, made in ``disk`` without holding its features in memory; None where the dataset has no such way."""
        return None

    def files(self, root: Path) -> dict[str, Path]:
        """The raw files that :meth:`read` reads, by name: their paths below ``root``. Generated graphs have none."""
        return {}

    def address(self, file: str) -> str | None:
        """URL of one of :meth:`files`, or of the zip archive that holds them; None if nobody publishes it in this form."""
        return None

    def raw(self, root: Path) -> list[Path]:
        """The paths of :meth:`files`; those that are absent are downloaded."""
        files = self.files(root)
        for file, path in files.items():
            if not present(f"dataset={self.name}", path):
                fetch(self.name, file, files, self.address(file), self.by_hand)
        return list(files.values())

    def absent(self, root: Path) -> list[Path]:
        """Those of :meth:`files` that are not there; nothing is downloaded."""
        return [path for path in self.files(root).values() if not present(f"dataset={self.name}", path)]

    def source(self, root: Path) -> object:
        """Inputs of :meth:`stream` other than the keys, such as raw files."""
        return None

    def feature_bytes(self) -> int:
        """Size of the dense features of a dataset too large for some memories; 0 for the others."""
        return 0

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
        nodes, columns = features.shape
        if columns > MOST_FEATURES:
            raise UserError(f"dataset={self.name}: {columns} columns of features; at most {MOST_FEATURES} are allowed")
        if row.dtype.kind not in "iu" or col.dtype.kind not in "iu":
            raise UserError(f"dataset={self.name}: edges must name nodes by integers, not {row.dtype}")
        outside = row.size > 0 and (min(row.min(), col.min()) < 0 or max(row.max(), col.max()) >= nodes)
        if outside:
            raise UserError(f"dataset={self.name}: an edge names a node outside 0..{nodes - 1}")
        labels = np.asarray(labels, dtype=np.int64 if np.ndim(labels) == 1 else np.float32)
        classes = int(labels.max(initial=-1)) + 1 if labels.ndim == 1 else labels.shape[1]
        if num_classes is None and labels.ndim == 1 and classes > nodes:
            raise UserError(f"dataset={self.name}: a label of {classes - 1} for {nodes} nodes; there are no more classes than nodes")
        return Graph(
            name=self.name,
            features=canonical_features(features),
            edges=canonical_edges(row, col, nodes),
            labels=labels,
            num_classes=classes if num_classes is None else num_classes,
            metric=self.metric,
            owner=owner,
        )


def below(root: Path, *names: str) -> dict[str, Path]:
    """Every name with its path below ``root``: what :meth:`Dataset.files` gives."""
    return {name: root / name for name in names}


def stored(graph: Graph, cache: Path) -> Graph:
    """``graph`` with dense features, edges and labels in a folder of ``cache`` named by their content."""
    if sp.issparse(graph.features):
        raise UserError(f"out_of_core=true: dataset={graph.name} has sparse features, which stay in memory; set out_of_core=false")
    content = hashlib.sha256()
    for array, dtype in ((graph.features, "<f4"), (graph.edges, "<i8"), (graph.labels, "<f4" if graph.labels.ndim > 1 else "<i8")):
        update(content, array, dtype)
    disk = Disk(cache / f"graph_{graph.name}_{content.hexdigest()[:16]}")
    fields: dict[str, Any] = {
        name: disk.array(name, array.shape, array.dtype, partial(np.copyto, src=array))
        for name, array in (("features", graph.features), ("edges", graph.edges), ("labels", graph.labels))
    }
    return replace(graph, **fields)


def check_owners(key: str, chosen: Sequence[str], known: Sequence[str]) -> list[str]:
    """``chosen`` as a list; raises UserError unless it names at least one of ``known``, and none twice."""
    names = list(chosen)
    if not names or len(set(names)) < len(names) or not set(names) <= set(known):
        raise UserError(f"{key}={names}: must be different ones of {', '.join(known)}")
    return names


def side_by_side(dataset: Dataset, parts: Sequence[Owned], num_classes: int | None = None) -> Graph:
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
