"""Friendships at eighteen American schools in 2005 (Traud, Mucha and Porter, 2012): a school's graph, or a federation of schools."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.checks import check_choice
from fgl_bench.data.datasets.base import Dataset, below, check_owners, side_by_side
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import reading
from fgl_bench.errors import Range, at_least

PUBLISHED = {  # by Lim et al. (NeurIPS 2021), under these names
    "amherst41": "Amherst41",
    "cornell5": "Cornell5",
    "johnshopkins55": "Johns%20Hopkins55",
    "reed98": "Reed98",
}
OTHERS = (
    "American75", "Brandeis99", "Caltech36", "Colgate88", "Haverford76", "MIT8", "Middlebury45", "Oberlin44", "Oklahoma97", "Pepperdine86",
    "Santa74", "Trinity100", "UNC28", "Wesleyan43",
)  # fmt: skip
FILES = {
    **{name: f"{name}/raw/data.mat" for name in PUBLISHED},
    **{name.lower(): f"facebook100/{name}/raw/data.mat" for name in OTHERS},
}
SCHOOLS = tuple(sorted(FILES))
SHARED = {"status": 0, "gender": 1, "year": 5, "high_school": 6}  # columns of codes that mean the same at every school
OF_SCHOOL = {"major": 2, "second_major": 3, "dorm": 4}  # and of those that are each school's own
CLASSES = {"year": range(2004, 2010), "gender": range(1, 3), "status": range(1, 7)}  # codes that are classes, in this order


@dataclass
class Facebook100(Dataset):
    """Schools in one feature space: a natural federation. Features are one-hot, without a column for a missing value.

    Status, gender, year and high school have the same codes everywhere, so that schools share their columns. The attribute that is
    the label is no feature. People without a label, or with one that is no class, are unlabeled: in the graph, but in no mask.

    Attributes:
        schools: some of the eighteen; their order is the clients' order.
        label: ``year`` of graduation (2004 to 2009, 6 classes), ``gender`` (2) or ``status`` (student, alumnus, staff, ...; 6).
        min_frequency: of an attribute's codes, those that fewer people have share one column, as in scikit-learn's encoder.
        school_features: majors, second majors and dorms are features too, each school's in columns of its own.
    """

    by_hand = "a .mat with A (friendships) and local_info (seven columns of codes) there"
    ranges: ClassVar[dict[str, Range]] = {"min_frequency": at_least(1)}

    schools: list[str]
    label: str
    min_frequency: int
    school_features: bool

    def files(self, root: Path) -> dict[str, Path]:
        check_choice("dataset.label", self.label, CLASSES)
        return below(root, *(FILES[name] for name in check_owners("dataset.schools", self.schools, SCHOOLS)))

    def read(self, root: Path) -> Graph:
        links, tables = zip(*read_schools(self.name, self.raw(root)), strict=True)
        sizes = [len(table) for table in tables]
        whole = np.concatenate(tables)
        school = np.repeat(np.arange(len(sizes)), sizes)
        columns = [whole[:, column] for name, column in SHARED.items() if name != self.label]
        if self.school_features:
            most = whole.max(initial=0) + 1
            columns += [np.where(whole[:, column] > 0, school * most + whole[:, column], 0) for column in OF_SCHOOL.values()]
        features = sp.csr_matrix(sp.hstack([one_hot(codes, self.min_frequency) for codes in columns]))
        parts = np.split(np.arange(len(whole)), np.cumsum(sizes)[:-1])
        labels = classes(whole[:, SHARED[self.label]], CLASSES[self.label])
        owned = [(features[ids], graph.row, graph.col, labels[ids]) for ids, graph in zip(parts, links, strict=True)]
        return side_by_side(self, owned, len(CLASSES[self.label]))

    def address(self, file: str) -> str | None:
        return _address(file)


@dataclass
class LINKX(Dataset):
    """A school's graph as PyG's ``LINKXDataset`` builds it, but sparse: the label is the gender (-1 = not stated), the rest is one-hot."""

    def files(self, root: Path) -> dict[str, Path]:
        check_choice("dataset.name", self.name, PUBLISHED)
        return below(root, FILES[self.name])

    def address(self, file: str) -> str | None:
        return _address(file)

    def read(self, root: Path) -> Graph:
        [(links, table)] = read_schools(self.name, self.raw(root))
        attributes = [one_hot(table[:, column] + 1) for column in range(table.shape[1]) if column != 1]  # 0 has a column too
        return self.graph(sp.hstack(attributes, format="csr"), links.row, links.col, table[:, 1] - 1)


def _address(file: str) -> str | None:
    school = PUBLISHED.get(file.partition("/")[0])
    return school and f"https://github.com/CUAI/Non-Homophily-Large-Scale/raw/master/data/facebook100/{school}.mat"


def classes(codes: np.ndarray, wanted: Sequence[int]) -> np.ndarray:
    """The place of every code in the ascending ``wanted``; -1 where it is not there."""
    kinds = np.asarray(wanted)
    index = np.searchsorted(kinds, codes).clip(max=kinds.size - 1)
    return np.where(kinds[index] == codes, index, -1)


def one_hot(codes: np.ndarray, min_frequency: int = 1) -> sp.csr_matrix:
    """A column for every code above 0, in ascending order, and a last one for all those that fewer than ``min_frequency`` have."""
    kinds, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    usual = (counts >= min_frequency) & (kinds > 0)
    column = np.where(usual, np.cumsum(usual) - 1, usual.sum())
    known = kinds > 0
    rows = np.flatnonzero(known[inverse])
    width = int(usual.sum() + (known & ~usual).any())
    return sp.csr_matrix((np.ones(rows.size, np.float32), (rows, column[inverse][rows])), shape=(codes.size, width))


MOST_SECONDS = 60  # a file; the largest takes one or two
PROGRAM = """
import sys, numpy, scipy.io, scipy.sparse
for path, out in zip(sys.argv[1::2], sys.argv[2::2]):
    content = scipy.io.loadmat(path, variable_names=["A", "local_info"])
    links = scipy.sparse.coo_matrix(content["A"])
    numpy.savez(out, row=links.row, col=links.col, shape=links.shape, codes=content["local_info"].astype("int64"))
"""


def read_schools(dataset: str, paths: Sequence[Path]) -> list[tuple[sp.coo_matrix, np.ndarray]]:
    """Friendships ``[n, n]`` and codes ``[n, 7]`` of every file; raises UserError where one is damaged."""
    schools = []
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder) / f"{number}.npz" for number in range(len(paths))]
        names = [str(path) for pair in zip(paths, parts, strict=True) for path in pair]
        line = [sys.executable, "-P", "-c", PROGRAM, *names]
        try:
            done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=MOST_SECONDS * len(paths))
            lines = done.stderr.splitlines() or [f"scipy's parser ended with status {done.returncode}"]  # a signal's is below 0
        except subprocess.TimeoutExpired:
            lines = [f"scipy's parser was stopped after {MOST_SECONDS * len(paths)} s"]
        for path, part in zip(paths, parts, strict=True):
            with reading(dataset, path):
                if not part.is_file():
                    raise ValueError(lines[-1])
                with np.load(part, allow_pickle=False) as arrays:
                    rows, columns = arrays["shape"].tolist()
                    links = sp.coo_matrix((np.ones(arrays["row"].size), (arrays["row"], arrays["col"])), shape=(rows, columns))
                    codes = arrays["codes"]
                if rows != columns or codes.shape != (rows, 7) or codes.min(initial=0) < 0:
                    raise ValueError(f"friendships {[rows, columns]}, codes {list(codes.shape)}")
                schools.append((links, codes))
    return schools
