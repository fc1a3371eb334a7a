"""Cora, CiteSeer and PubMed (Yang et al., ICML 2016) from Planetoid's raw files, in PyG's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import locate, read_pickle, reading

FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
PARTS = ["tx", "allx", "ty", "ally", "graph"]


def _address(file: str) -> str:
    from torch_geometric.datasets import Planetoid as Source

    return f"{Source.url}/{file}"


@dataclass
class Planetoid(Dataset):
    """The graph of PyG's ``Planetoid``: raw features, no normalisation; the public masks are not used."""

    def read(self, root: Path) -> Graph:
        folder = f"{self.choose(FOLDERS)}/raw"
        names = [f"ind.{self.name}.{part}" for part in ("x", *PARTS, "y", "test.index")]
        paths = locate(self.name, root, [f"{folder}/{name}" for name in names], _address)
        by_part = dict(zip(("x", *PARTS, "y", "test.index"), paths, strict=True))
        tx, allx, ty, ally, links = (read_pickle(self.name, by_part[part]) for part in PARTS)
        with reading(self.name, by_part["test.index"]):
            test = np.loadtxt(by_part["test.index"], dtype=np.int64, ndmin=1)
        with reading(self.name, root / folder):
            start, nodes = int(test.min()), len(links)
            if allx.shape[0] != start or tx.shape[0] != test.size or test.max() >= nodes:
                raise ValueError("the ind.* files do not fit together")
            # Test rows go where test.index says; ids that it skips (CiteSeer's isolated nodes) stay zero.
            place = sp.csr_matrix((np.ones(test.size, dtype=np.float32), (test - start, np.arange(test.size))), (nodes - start, test.size))
            features = sp.vstack([_rebuilt(allx), place @ _rebuilt(tx)], format="csr")
            labels = np.zeros(nodes, dtype=np.int64)
            labels[:start] = ally.argmax(axis=1)
            labels[test] = ty.argmax(axis=1)
            row = np.repeat(np.fromiter(links, dtype=np.int64), [len(ends) for ends in links.values()])
            col = np.concatenate([np.asarray(ends, dtype=np.int64) for ends in links.values()])
            return self.graph(features, row, col, labels, num_classes=ally.shape[1])


def _rebuilt(old: sp.csr_matrix) -> sp.csr_matrix:
    # Objects pickled by an old scipy lack newer attributes.
    return sp.csr_matrix((old.data, old.indices, old.indptr), shape=old.shape, dtype=np.float32)
