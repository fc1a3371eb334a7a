"""Facebook100 schools (Traud et al., 2012; Lim et al., NeurIPS 2021), in the layout of PyG's LINKXDataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.checks import check_choice
from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.mat import read_schools
from fgl_bench.data.raw import locate

NAMES = ("reed98", "amherst41", "johnshopkins55", "cornell5")


@dataclass
class LINKX(Dataset):
    """A school's graph as PyG builds it: label = gender (-1 = not stated), every other attribute one-hot, here sparse."""

    def files(self, root: Path) -> dict[str, Path]:
        check_choice("dataset.name", self.name, NAMES)
        return below(root, f"{self.name}/raw/data.mat")

    def read(self, root: Path) -> Graph:
        (path,) = locate(self.name, self.files(root).values(), self._address)
        [(links, table)] = read_schools(self.name, [path])
        attributes = [_one_hot(table[:, column]) for column in range(table.shape[1]) if column != 1]
        return self.graph(sp.hstack(attributes, format="csr"), links.row, links.col, table[:, 1] - 1)

    def _address(self, file: str) -> str:
        from torch_geometric.datasets import LINKXDataset as Source

        return Source.datasets[self.name][file]


def _one_hot(values: np.ndarray) -> sp.csr_matrix:
    kinds, column = np.unique(values, return_inverse=True)
    ones, pointers = np.ones(values.size, dtype=np.float32), np.arange(values.size + 1)
    return sp.csr_matrix((ones, column, pointers), shape=(values.size, kinds.size))
