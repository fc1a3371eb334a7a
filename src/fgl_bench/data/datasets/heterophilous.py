"""Heterophilous graphs (Platonov et al., ICLR 2023), with the filtered Chameleon and Squirrel of the same paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fgl_bench.data.checks import check_choice
from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import locate, read_arrays, reading

PYG_NAMES = ("roman_empire", "amazon_ratings", "minesweeper", "tolokers", "questions")
NAMES = (*PYG_NAMES, "chameleon_filtered", "squirrel_filtered")


def _address(file: str) -> str:
    from torch_geometric.datasets import HeterophilousGraphDataset as Source

    return f"{Source.url}/{file}"


@dataclass
class Heterophilous(Dataset):
    """The graph of PyG's ``HeterophilousGraphDataset``; the ten fixed masks in the file are not used."""

    def files(self, root: Path) -> dict[str, Path]:
        check_choice("dataset.name", self.name, NAMES)
        return below(root, f"{self.name}/raw/{self.name}.npz")

    def read(self, root: Path) -> Graph:
        (path,) = locate(self.name, self.files(root).values(), _address)
        arrays = read_arrays(self.name, path, ["node_features", "node_labels", "edges"])
        with reading(self.name, path):
            row, col = arrays["edges"].T
            return self.graph(arrays["node_features"], row, col, arrays["node_labels"])
