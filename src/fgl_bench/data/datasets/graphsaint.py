"""Flickr and Yelp as GraphSAINT published them (Zeng et al., ICLR 2020), and Reddit (Hamilton et al., NeurIPS 2017), in PyG's layout."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.npz import CSR_PARTS, csr, read_arrays
from fgl_bench.data.raw import reading

FILES = ("adj_full.npz", "feats.npy", "class_map.json")


@dataclass
class _GraphSAINT(Dataset):
    """Raw features, as PyG has them; the published split into roles is not used. Named like PyG's class, whose folder it shares."""

    drive: ClassVar[tuple[str, ...]]  # Google's ids of FILES

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, *(f"{type(self).__name__}/raw/{file}" for file in FILES))

    def read(self, root: Path) -> Graph:
        adjacency, feats, classes = self.raw(root)
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

    def address(self, file: str) -> str:
        return f"https://drive.usercontent.google.com/download?id={self.drive[FILES.index(Path(file).name)]}&confirm=t"


@dataclass
class Flickr(_GraphSAINT):
    """Pictures, joined where they share a place, a gallery or a commentator."""

    drive = ("1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy", "1join-XdvX3anJU_MLVtick7MgeAQiWIZ", "1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9")


@dataclass
class Yelp(_GraphSAINT):
    """Reviewers and their friendships; the 100 kinds of business that a reviewer went to, several labels each."""

    drive = ("1Juwx8HtDwSzmVIJ31ooVa1WljI4U5JnA", "1Zy6BZH_zLEjKlEFSduKE5tV9qqA_8VtM", "1VUcBGr0T0-klqerjAjxRmAqFuld_SMWU")


@dataclass
class Reddit(Dataset):
    """Posts, joined where one user commented on both; the published split by day is not used."""

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, "Reddit/raw/reddit_data.npz", "Reddit/raw/reddit_graph.npz")

    def address(self, file: str) -> str:
        return "https://data.dgl.ai/dataset/reddit.zip"

    def read(self, root: Path) -> Graph:
        data, links = self.raw(root)
        arrays = read_arrays(self.name, data, ["feature", "label"])
        with reading(self.name, links):
            adjacency = sp.load_npz(links).tocoo()  # type: ignore[misc]  # the stubs name only a base class
            if not arrays["feature"].shape[0] == arrays["label"].shape[0] == adjacency.shape[0]:
                raise ValueError("the two files do not fit together")
        return self.graph(arrays["feature"], adjacency.row, adjacency.col, arrays["label"])
