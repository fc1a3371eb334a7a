"""ogbn-arxiv (Hu et al., NeurIPS 2020), from OGB's own raw files.

OGB's loader asks questions on standard input, looks for updates when imported and unpickles what it cached; the csv
files that it publishes are read here directly, in its folder layout.
"""

from __future__ import annotations

import shutil
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import downloaded, one_line, place, reading
from fgl_bench.errors import UserError

ARCHIVES = {"ogbn_arxiv": "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"}
FILES = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")


@dataclass
class OGB(Dataset):
    """A node-classification graph of OGB, made undirected; OGB's split by year is not used."""

    def read(self, root: Path) -> Graph:
        archive = self.choose(ARCHIVES)
        folder = root / self.name / "raw"
        missing = [folder / file for file in FILES if not (folder / file).is_file()]
        if missing:
            with downloaded(self.name, missing[0], lambda: archive) as temporary:
                self._unpack(temporary, missing)
        edges = self._table(folder / FILES[0], np.int64)
        features = self._table(folder / FILES[1], np.float32)
        labels = self._table(folder / FILES[2], np.float64)
        with reading(self.name, folder):
            row, col = edges.T
            return self.graph(features, row, col, np.nan_to_num(labels[:, 0], nan=-1).astype(np.int64))

    def _unpack(self, archive: Path, wanted: list[Path]) -> None:
        parts = [archive.with_name(path.name) for path in wanted]
        try:
            with zipfile.ZipFile(archive) as content:
                for part in parts:
                    (member,) = (entry for entry in content.namelist() if entry.endswith(f"/raw/{part.name}"))
                    with content.open(member) as source, part.open("wb") as out:
                        shutil.copyfileobj(source, out)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"dataset={self.name}: {self.choose(ARCHIVES)} is damaged ({one_line(error)}); try again") from None
        for part, path in zip(parts, wanted, strict=True):
            place(self.name, part, path)

    def _table(self, path: Path, dtype: type) -> np.ndarray:
        with reading(self.name, path):
            import pandas as pd

            return pd.read_csv(path, header=None, dtype=dtype).to_numpy()
