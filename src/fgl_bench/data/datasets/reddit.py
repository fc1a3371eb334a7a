"""Reddit's posts (Hamilton et al., NeurIPS 2017) from the two archives that PyG's loader reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import downloaded, present, read_arrays, reading, unpack

FILES = ("reddit_data.npz", "reddit_graph.npz")


def _address() -> str:
    from torch_geometric.datasets import Reddit as Source

    return Source.url


@dataclass
class Reddit(Dataset):
    """Posts, joined where one user commented on both; the published split by day is not used."""

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, *(f"Reddit/raw/{file}" for file in FILES))

    def read(self, root: Path) -> Graph:
        data, links = paths = list(self.files(root).values())
        missing = [path for path in paths if not present(f"dataset={self.name}", path)]
        if missing:
            with downloaded(self.name, missing[0], _address) as temporary:
                unpack(self.name, temporary, _address(), lambda path: f"/{path.name}", missing)
        arrays = read_arrays(self.name, data, ["feature", "label"])
        with reading(self.name, links):
            adjacency = sp.load_npz(links).tocoo()  # type: ignore[misc]  # the stubs name only a base class
            if not arrays["feature"].shape[0] == arrays["label"].shape[0] == adjacency.shape[0]:
                raise ValueError("the two files do not fit together")
        return self.graph(arrays["feature"], adjacency.row, adjacency.col, arrays["label"])
