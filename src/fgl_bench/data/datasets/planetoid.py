"""Cora, CiteSeer and PubMed (Yang et al., ICML 2016) from Planetoid's raw files, in PyG's layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.checks import check_choice
from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.masks import GIVEN
from fgl_bench.data.pickles import read_pickle
from fgl_bench.data.raw import reading

FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")

VALIDATION = 500
"""Nodes of the public validation mask; they follow the training nodes."""


@dataclass
class Planetoid(Dataset):
    """The graph of PyG's ``Planetoid``: raw features, no normalization; its masks are the public ones (``split.masks=given``)."""

    def files(self, root: Path) -> dict[str, Path]:
        check_choice("dataset.name", self.name, FOLDERS)
        return below(root, *(f"{FOLDERS[self.name]}/raw/ind.{self.name}.{part}" for part in PARTS))

    def address(self, file: str) -> str:
        return f"https://github.com/kimiyoung/planetoid/raw/master/data/{Path(file).name}"

    def read(self, root: Path) -> Graph:
        paths = dict(zip(PARTS, self.raw(root), strict=True))
        tx, allx = (read_pickle(self.name, paths[part], sp.csr_matrix) for part in ("tx", "allx"))
        y, ty, ally = (read_pickle(self.name, paths[part], np.ndarray) for part in ("y", "ty", "ally"))
        links = read_pickle(self.name, paths["graph"], dict)
        with reading(self.name, paths["test.index"]):
            test = np.array(paths["test.index"].read_text().split(), dtype=np.int64)
            if not test.size or test.min() < 0 or test.max() >= len(links):
                raise ValueError(f"it must hold ids of test nodes, from 0 to {len(links) - 1}")
            if np.unique(test).size < test.size:
                raise ValueError("an id stands there twice")
        with reading(self.name, paths["graph"].parent):
            start, nodes, classes = int(test.min()), len(links), ally.shape[-1]
            sizes = (allx.shape[0], tx.shape, ally.shape, ty.shape)
            if sizes != (start, (test.size, allx.shape[1]), (start, classes), (test.size, classes)):
                raise ValueError("the ind.* files do not fit together")
            # Test rows go where test.index says; ids that it skips (CiteSeer's isolated nodes) stay zero.
            place = sp.csr_matrix((np.ones(test.size, dtype=np.float32), (test - start, np.arange(test.size))), (nodes - start, test.size))
            features = sp.vstack([allx.astype(np.float32), place @ tx.astype(np.float32)], format="csr")
            labels = np.zeros(nodes, dtype=np.int64)
            labels[:start] = ally.argmax(axis=1)
            labels[test] = ty.argmax(axis=1)
            row = np.repeat(np.fromiter(links, dtype=np.int64), [len(ends) for ends in links.values()])
            col = np.concatenate([np.asarray(ends, dtype=np.int64) for ends in links.values()])
            graph = self.graph(features, row, col, labels, num_classes=classes)
            ids = np.arange(nodes)
            public = (ids < len(y), (ids >= len(y)) & (ids < len(y) + VALIDATION), np.isin(ids, test))
            return replace(graph, masks=dict(zip(GIVEN, public, strict=True)))
