"""Amazon Photo and Computers (Shchur et al., 2018), in PyG's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.datasets.npz import read_single
from fgl_bench.data.graph import Graph

FILES = {name: f"{name.capitalize()}/raw/amazon_electronics_{name}.npz" for name in ("photo", "computers")}


def _address(file: str) -> str:
    from torch_geometric.datasets import Amazon as Source

    return Source.url + file


@dataclass
class Amazon(Dataset):
    """The graph of PyG's ``Amazon``; ``largest_component`` gives the counts of Shchur et al. and of FedSA-GCL."""

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, self.choose(FILES))

    def read(self, root: Path) -> Graph:
        return read_single(self, root, _address)
