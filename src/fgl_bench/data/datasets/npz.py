"""Datasets whose raw file is one npz with the CSR parts of adjacency and attributes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import MUSAE, locate, read_csr_graph


def read_single(dataset: Dataset, root: Path, address: Callable[[str], str] | None) -> Graph:
    """The graph in the one file of ``dataset``; features stay sparse and become 0/1, as PyG makes them."""
    (path,) = locate(dataset.name, dataset.files(root).values(), address, MUSAE)
    return dataset.graph(*read_csr_graph(dataset.name, path))
