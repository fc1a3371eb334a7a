"""GCFL and GCFL+ on small federations."""

from __future__ import annotations

import pytest

from fgl_bench.algorithms.gcfl import GCFL
from fgl_bench.algorithms.gcfl_plus import GCFLPlus
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {"eps1": 0.05, "eps2": 0.1, "relative": False, "warmup": 20, "shared": "all"}
EAGER = {"eps1": 1e9, "eps2": 0.0, "warmup": 2}  # splits whenever it may
BOTH = pytest.mark.parametrize("make", [lambda **c: gcfl(**c), lambda **c: plus(**c)], ids=["gcfl", "gcfl_plus"])


def gcfl(**changes):
    return GCFL(**{**KEYS, **changes})


def plus(**changes):
    return GCFLPlus(**{**KEYS, "sequence": 2, "standardize": False, **changes})


def run(algorithm, seeds=(0, 1), clients=6, **settings):
    federations = [small_federation(seed, clients=clients) for seed in seeds]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 7, **settings})


def watch_clusters(algorithm):
    """Clusters ``[S, C]`` after every round."""
    seen, mix = [], algorithm.mix

    def recording(reports, arrived):
        mixing = mix(reports, arrived)
        seen.append((algorithm.clusters.copy(), mixing.matrix().clone(), arrived.clone()))
        return mixing

    algorithm.mix = recording
    return seen
