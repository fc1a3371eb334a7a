"""ogbn-arxiv, ogbn-products and ogbn-papers100M (Hu et al., NeurIPS 2020), from OGB's own raw files.

OGB's loader asks questions on standard input, looks for updates when imported and unpickles what it cached; the files that it
publishes are read here directly, in its folder layout: csv tables, and for papers100M arrays in a zip archive, read in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fgl_bench.data.checks import check_choice, check_graph
from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.npz import Member
from fgl_bench.data.out_of_core import canonical_edges_on_disk
from fgl_bench.data.raw import reading
from fgl_bench.data.storage import Disk, blocks, release
from fgl_bench.errors import UserError

ADDRESS = "https://snap.stanford.edu/ogb/data/nodeproppred"
ARCHIVES = {
    "ogbn_arxiv": f"{ADDRESS}/arxiv.zip",
    "ogbn_products": f"{ADDRESS}/products.zip",
    "ogbn_papers100m": f"{ADDRESS}/papers100M-bin.zip",
}
FILES = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")
ARRAYS = ("data.npz", "node-label.npz")
FEATURE_BYTES = {"ogbn_products": 4 * 100 * 2_449_029, "ogbn_papers100m": 4 * 128 * 111_059_956}
LINES = 1 << 20
"""Lines of a csv table that are read at a time."""


@dataclass
class OGB(Dataset):
    """A node-classification graph of OGB, made undirected; OGB's split by time or sales rank is not used."""

    def read(self, root: Path) -> Graph:
        raw = self._raw(root)
        labels = raw.labels()
        features = np.concatenate(list(raw.features()))
        row, col = np.concatenate(list(raw.edges()), axis=1)
        with reading(self.name, raw.folder):
            return self.graph(features, row, col, labels)

    def stream(self, root: Path, disk: Disk) -> Graph:
        raw = self._raw(root)
        labels = raw.labels()
        width = next(raw.features()).shape[1]

        def fill(out: np.ndarray) -> None:
            done = 0
            for part in raw.features():
                if not np.isfinite(part).all():
                    raise UserError(f"dataset={self.name}: a feature is not a finite number")
                out[done : done + len(part)] = part
                done += len(part)
                release(out)

        def pairs() -> Iterator[np.ndarray]:
            for part in raw.edges():
                if part.size and (part.min() < 0 or part.max() >= labels.size):
                    raise UserError(f"dataset={self.name}: an edge names a node outside 0..{labels.size - 1}")
                yield part

        edges = canonical_edges_on_disk(pairs, labels.size, disk)
        features = disk.array("features", (labels.size, width), np.float32, fill)
        shown = Graph(self.name, np.zeros((labels.size, 1), np.float32), edges, labels, int(labels.max(initial=-1)) + 1, self.metric)
        check_graph(shown, f"dataset={self.name}")
        return Graph(self.name, features, edges, labels, shown.num_classes, self.metric)

    def source(self, root: Path) -> list[tuple[str, int, int]]:
        raw = self._raw(root)
        return [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in raw.files]

    def feature_bytes(self) -> int:
        return FEATURE_BYTES.get(self.name, 0)

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, *(f"{self.name}/raw/{path.name}" for path in self._layout(root).files))

    def _layout(self, root: Path) -> Tables | Arrays:
        """The raw files, whether or not they are there."""
        check_choice("dataset.name", self.name, ARCHIVES)
        return (Arrays if self.name == "ogbn_papers100m" else Tables)(self.name, root / self.name / "raw")

    def address(self, file: str) -> str:
        return ARCHIVES[self.name]

    def _raw(self, root: Path) -> Tables | Arrays:
        """The raw files, downloaded where they are absent."""
        self.raw(root)
        return self._layout(root)


class Tables:
    """Three compressed csv tables."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder, self.files = name, folder, [folder / file for file in FILES]

    def _blocks(self, file: str, dtype: type) -> Iterator[np.ndarray]:
        import pandas as pd

        with reading(self.name, self.folder / file), pd.read_csv(self.folder / file, header=None, dtype=dtype, chunksize=LINES) as table:
            yield from (part.to_numpy() for part in table)

    def edges(self) -> Iterator[np.ndarray]:
        """``[2, e]`` int64 raw edges."""
        return (part.T for part in self._blocks(FILES[0], np.int64))

    def features(self) -> Iterator[np.ndarray]:
        """``[n, F]`` float32."""
        return self._blocks(FILES[1], np.float32)

    def labels(self) -> np.ndarray:
        """``[N]`` int64, -1 where there is none."""
        return _classes(np.concatenate(list(self._blocks(FILES[2], np.float64))))


class Arrays:
    """Two archives of arrays, larger than memory; nothing in them is unpickled."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder, self.files = name, folder, [folder / file for file in ARRAYS]

    def edges(self) -> Iterator[np.ndarray]:
        """``[2, e]`` int64 raw edges; the array holds all sources before all targets, so it is read at two places."""
        with (
            reading(self.name, self.files[0]),
            Member(self.files[0], "edge_index") as sources,
            Member(self.files[0], "edge_index") as targets,
        ):
            count = sources.shape[1]
            targets.skip(count)
            for part in blocks(count, 2 * sources.dtype.itemsize):
                yield np.stack([sources.take(part.stop - part.start), targets.take(part.stop - part.start)]).astype(np.int64, copy=False)

    def features(self) -> Iterator[np.ndarray]:
        """``[n, F]`` float32."""
        with reading(self.name, self.files[0]), Member(self.files[0], "node_feat") as member:
            rows, width = member.shape
            for part in blocks(rows, width * member.dtype.itemsize):
                yield member.take((part.stop - part.start) * width).reshape(-1, width).astype(np.float32, copy=False)

    def labels(self) -> np.ndarray:
        """``[N]`` int64, -1 where there is none."""
        with reading(self.name, self.files[1]), Member(self.files[1], "node_label") as member:
            return _classes(member.take(int(np.prod(member.shape))).reshape(member.shape[0], -1))


def _classes(labels: np.ndarray) -> np.ndarray:
    return np.nan_to_num(labels[:, 0].astype(np.float64), nan=-1).astype(np.int64)
