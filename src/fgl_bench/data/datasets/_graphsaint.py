"""Graphs that GraphSAINT published (Zeng et al., ICLR 2020), from its raw files in PyG's layout."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import CSR_PARTS, csr, locate, read_arrays, reading

FILES = {"adj_full.npz": "adj_full_id", "feats.npy": "feats_id", "class_map.json": "class_map_id"}


@dataclass
class GraphSAINT(Dataset):
    """Raw features, as PyG has them; the published split into roles is not used. Named like PyG's class, whose folder it shares."""

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, *(f"{type(self).__name__}/raw/{file}" for file in FILES))

    def read(self, root: Path) -> Graph:
        adjacency, feats, classes = locate(self.name, self.files(root).values(), self._address)
        parts = read_arrays(self.name, adjacency, CSR_PARTS)
        with reading(self.name, adjacency):
            links = csr(parts).tocoo()
        with reading(self.name, feats):
            features = np.load(feats, allow_pickle=False).astype(np.float32)
        with reading(self.name, classes), classes.open(encoding="utf-8") as file:
            table = json.load(file)
            known = np.array(list(table.values()))
            labels = np.full((features.shape[0], *known.shape[1:]), -1 if known.ndim == 1 else 0, known.dtype)
            labels[np.fromiter(map(int, table), dtype=np.int64, count=len(table))] = known
            if links.shape[0] != features.shape[0]:
                raise ValueError("the files do not fit together")
        return self.graph(features, links.row, links.col, labels)

    def _address(self, file: str) -> str:
        import torch_geometric.datasets

        source = getattr(torch_geometric.datasets, type(self).__name__)
        return f"https://drive.usercontent.google.com/download?id={getattr(source, FILES[file])}&confirm=t"
