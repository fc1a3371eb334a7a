"""Actor, the film co-occurrence graph (Pei et al., ICLR 2020), in PyG's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import reading

FILES = ["actor/raw/out1_node_feature_label.txt", "actor/raw/out1_graph_edges.txt"]


@dataclass
class Actor(Dataset):
    """The graph of PyG's ``Actor``, made undirected; the ten fixed masks are not used."""

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, *FILES)

    def address(self, file: str) -> str:
        return f"https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data/film/{Path(file).name}"

    def read(self, root: Path) -> Graph:
        nodes_path, edges_path = self.raw(root)
        with reading(self.name, nodes_path):
            lines = [line.split("\t") for line in nodes_path.read_text().splitlines()[1:]]
            ids, words, labels_text = zip(*lines, strict=True)
            position = np.array(ids, dtype=np.int64)
            row = np.repeat(position, [text.count(",") + 1 for text in words])
            col = np.array(",".join(words).split(","), dtype=np.int64)
            labels = np.full(position.size, -1, dtype=np.int64)
            labels[position] = np.array(labels_text, dtype=np.int64)
            # A word listed twice still counts once.
            features = sp.csr_matrix((np.ones(row.size, dtype=np.float32), (row, col)))
            features.data[:] = 1
        with reading(self.name, edges_path):
            edges = np.loadtxt(edges_path, dtype=np.int64, skiprows=1, delimiter="\t", ndmin=2)
            row, col = edges.T
        return self.graph(features, row, col, labels)
