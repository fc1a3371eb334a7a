"""Three citation databases with the same words and classes (Shen et al., AAAI 2020), made for domain adaptation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fgl_bench.data.datasets._owners import check_owners, side_by_side
from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import CSR_GRAPH, locate, read_csr_graph

DATABASES = ("acmv9", "citationv1", "dblpv7")


@dataclass
class CitationDomains(Dataset):
    """Citation networks of several databases in one feature space: a natural federation, one client a database.

    The few papers with two labels have the first.

    Attributes:
        databases: some of acmv9, citationv1, dblpv7; their order is the clients' order.
    """

    databases: list[str]

    def files(self, root: Path) -> dict[str, Path]:
        chosen = check_owners("dataset.databases", self.databases, DATABASES)
        return below(root, *(f"citation_domains/{name}/raw/{name}.npz" for name in chosen))

    def read(self, root: Path) -> Graph:
        paths = locate(self.name, self.files(root).values(), None, CSR_GRAPH)
        return side_by_side(self, [read_csr_graph(self.name, path) for path in paths])
