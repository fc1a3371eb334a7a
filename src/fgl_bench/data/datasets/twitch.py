"""The Twitch networks of seven countries (Rozemberczki et al., 2021), raw binary features in one shared space."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fgl_bench.data.datasets._owners import check_owners, side_by_side
from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import MUSAE, locate, read_csr_graph

COUNTRIES = ("de", "en", "es", "fr", "pt", "ru", "tw")


@dataclass
class Twitch(Dataset):
    """The Twitch networks of several countries in one feature space: a natural federation, one client a country.

    Attributes:
        countries: some of de, en, es, fr, pt, ru, tw; their order is the clients' order.
    """

    countries: list[str]

    def files(self, root: Path) -> dict[str, Path]:
        chosen = check_owners("dataset.countries", self.countries, COUNTRIES)
        return below(root, *(f"twitch_{country}/raw/twitch_{country}.npz" for country in chosen))

    def read(self, root: Path) -> Graph:
        paths = locate(self.name, self.files(root).values(), None, MUSAE)
        return side_by_side(self, [read_csr_graph(self.name, path) for path in paths])
