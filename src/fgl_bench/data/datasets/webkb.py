"""Web pages of three universities (Craven et al., 1998), as Platonov et al. (ICLR 2023) publish them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fgl_bench.data.datasets._owners import Part, check_owners, side_by_side
from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import locate, read_arrays, reading

UNIVERSITIES = ("cornell", "texas", "wisconsin")


def _address(file: str) -> str:
    from torch_geometric.datasets import HeterophilousGraphDataset as Source

    return f"{Source.url}/{file}"


@dataclass
class WebKB(Dataset):
    """The pages of several universities in one feature space: a natural federation, one client a university.

    PyG's ``WebKB`` downloads another cornell, whose nodes are those of texas; the ten fixed masks in the files are not used.

    Attributes:
        universities: some of cornell, texas, wisconsin; their order is the clients' order.
    """

    universities: list[str]

    def files(self, root: Path) -> dict[str, Path]:
        chosen = check_owners("dataset.universities", self.universities, UNIVERSITIES)
        return below(root, *(f"webkb_fixed/{name}/raw/{name}.npz" for name in chosen))

    def read(self, root: Path) -> Graph:
        paths = locate(self.name, self.files(root).values(), _address)
        return side_by_side(self, [self._part(path) for path in paths], num_classes=5)

    def _part(self, path: Path) -> Part:
        arrays = read_arrays(self.name, path, ["node_features", "node_labels", "edges"])
        with reading(self.name, path):
            row, col = arrays["edges"].T
            return arrays["node_features"], row, col, arrays["node_labels"]
