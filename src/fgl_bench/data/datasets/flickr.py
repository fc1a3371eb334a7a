"""Flickr's pictures (Zeng et al., ICLR 2020), from GraphSAINT's raw files in PyG's layout."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import locate, read_arrays, reading

FILES = {"adj_full.npz": "adj_full_id", "feats.npy": "feats_id", "class_map.json": "class_map_id"}


def _address(file: str) -> str:
    from torch_geometric.datasets import Flickr as Source

    return f"https://drive.usercontent.google.com/download?id={getattr(Source, FILES[file])}&confirm=t"


@dataclass
class Flickr(Dataset):
    """Pictures, joined where they share a place, a gallery or a commentator; the published split into roles is not used."""

    def read(self, root: Path) -> Graph:
        adjacency, feats, classes = locate(self.name, root, [f"Flickr/raw/{file}" for file in FILES], _address)
        parts = read_arrays(self.name, adjacency, ["data", "indices", "indptr", "shape"])
        with reading(self.name, adjacency):
            links = sp.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), tuple(parts["shape"])).tocoo()
        with reading(self.name, feats):
            features = np.load(feats, allow_pickle=False).astype(np.float32)
        with reading(self.name, classes), classes.open(encoding="utf-8") as file:
            table = json.load(file)
            labels = np.full(features.shape[0], -1, dtype=np.int64)
            labels[np.fromiter(map(int, table), dtype=np.int64, count=len(table))] = list(table.values())
            if links.shape[0] != features.shape[0]:
                raise ValueError("the files do not fit together")
        return self.graph(features, links.row, links.col, labels)
