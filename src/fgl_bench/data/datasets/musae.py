"""MUSAE's social networks (Rozemberczki et al., 2021) with their raw binary features, one npz each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.datasets.npz import read_single
from fgl_bench.data.graph import Graph

FILES = {name: f"{name}/raw/{name}.npz" for name in ("facebook_page_page", "github_social", "deezer_europe")}


@dataclass
class Musae(Dataset):
    """One network. PyG downloads 128-column reductions of these; here the original columns are read, hence no download."""

    def files(self, root: Path) -> dict[str, Path]:
        return below(root, self.choose(FILES))

    def read(self, root: Path) -> Graph:
        return read_single(self, root, None)
