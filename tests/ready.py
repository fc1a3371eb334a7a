"""What many commands import when they need it, numba, matplotlib and scipy.stats above all: imported here once, for all that are forked."""

from __future__ import annotations

import matplotlib.pyplot  # noqa: F401
import pymetis  # noqa: F401
import scipy.stats  # noqa: F401

import fgl_bench.algorithms.fedavg
import fgl_bench.algorithms.fedsa_gcl
import fgl_bench.cli.plot
import fgl_bench.cli.table
import fgl_bench.data.datasets.csbm
import fgl_bench.data.splits.metis
import fgl_bench.models.gcn
import fgl_bench.results.plots.kinds
import fgl_bench.results.result_table
import fgl_bench.scenarios.decentralized
import fgl_bench.scenarios.semi_async
import fgl_bench.scenarios.sync  # noqa: F401
from fgl_bench.engine.kernels.compiled import installed

if installed():
    import numba  # noqa: F401
