"""DBLP, Cora-ML and the full CiteSeer (Bojchevski and Guennemann, ICLR 2018), in PyG's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.datasets.npz import read_single
from fgl_bench.data.graph import Graph

# PyG's own folder "citeseer" differs from Planetoid's "CiteSeer" only in case, hence one more level.
FILES = {
    "dblp": "dblp/raw/dblp.npz",
    "cora_ml": "cora_ml/raw/cora_ml.npz",
    "citeseer_full": "citeseer_full/citeseer/raw/citeseer.npz",
}


def _address(file: str) -> str:
    from torch_geometric.datasets import CitationFull as Source

    return Source.url.format(file.removesuffix(".npz"))


@dataclass
class CitationFull(Dataset):
    """The graph of PyG's ``CitationFull``: features made 0/1, edges made undirected."""

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, self.choose(FILES))

    def read(self, root: Path) -> Graph:
        return read_single(self, root, _address)
