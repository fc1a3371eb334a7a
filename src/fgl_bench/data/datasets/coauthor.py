"""Coauthor CS and Physics (Shchur et al., 2018), in PyG's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.datasets.npz import read_single
from fgl_bench.data.graph import Graph

FILES = {"cs": "CS/raw/ms_academic_cs.npz", "physics": "Physics/raw/ms_academic_phy.npz"}


def _address(file: str) -> str:
    from torch_geometric.datasets import Coauthor as Source

    return Source.url + file


@dataclass
class Coauthor(Dataset):
    """The graph of PyG's ``Coauthor``, with sparse 0/1 features (dense, Physics would take 1.2 GB)."""

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, self.choose(FILES))

    def read(self, root: Path) -> Graph:
        return read_single(self, root, _address)
