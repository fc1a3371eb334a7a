"""The Twitch networks of seven countries (Rozemberczki et al., 2021), raw binary features in one shared space."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset, below
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import locate, read_csr_graph
from fgl_bench.errors import UserError

COUNTRIES = ("de", "en", "es", "fr", "pt", "ru", "tw")


@dataclass
class Twitch(Dataset):
    """The Twitch networks of several countries in one feature space: a natural federation, one client a country.

    Attributes:
        countries: some of de, en, es, fr, pt, ru, tw; their order is the clients' order.
    """

    countries: list[str]

    def files(self, root: Path) -> dict[str, Path]:
        chosen = list(self.countries)
        if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(COUNTRIES):
            raise UserError(f"dataset.countries={chosen}: must be different ones of {', '.join(COUNTRIES)}")
        return below(root, *(f"twitch_{country}/raw/twitch_{country}.npz" for country in chosen))

    def read(self, root: Path) -> Graph:
        paths = locate(self.name, self.files(root).values(), None)
        features, rows, cols, labels = zip(*(read_csr_graph(self.name, path) for path in paths), strict=True)
        sizes = [len(part) for part in labels]
        starts = np.cumsum([0, *sizes[:-1]])
        return self.graph(
            sp.csr_matrix(sp.vstack(features)),
            np.concatenate([row.astype(np.int64) + start for row, start in zip(rows, starts, strict=True)]),
            np.concatenate([col.astype(np.int64) + start for col, start in zip(cols, starts, strict=True)]),
            np.concatenate(labels),
            owner=np.repeat(np.arange(len(sizes)), sizes),
        )
