"""Facebook100's ``.mat`` files, parsed in a process of its own: scipy's parser may crash on a damaged file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.raw import reading

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
            said = done.stderr.splitlines() or [f"scipy's parser ended with status {done.returncode}"]  # a signal's is below 0
        except subprocess.TimeoutExpired:
            said = [f"scipy's parser was stopped after {MOST_SECONDS * len(paths)} s"]
        for path, part in zip(paths, parts, strict=True):
            with reading(dataset, path):
                if not part.is_file():
                    raise ValueError(said[-1])
                with np.load(part, allow_pickle=False) as arrays:
                    rows, columns = arrays["shape"].tolist()
                    links = sp.coo_matrix((np.ones(arrays["row"].size), (arrays["row"], arrays["col"])), shape=(rows, columns))
                    codes = arrays["codes"]
                if rows != columns or codes.shape != (rows, 7) or codes.min(initial=0) < 0:
                    raise ValueError(f"friendships {[rows, columns]}, codes {list(codes.shape)}")
                schools.append((links, codes))
    return schools
