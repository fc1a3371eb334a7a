"""What batching must not change, for any method: seeds together or alone, chunks."""

from __future__ import annotations

import torch

from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import TIGHT
from tests.reference.small import small_federation
from tests.small_runs import simulate


def assert_batching_changes_nothing(method, scenario, **settings):
    """``method`` and ``scenario`` make fresh instances; with dropout and two local epochs."""
    federations = [small_federation(seed, clients=6) for seed in (0, 1)]
    settings = {"rounds": 4, "local_epochs": 2, "model": GCN(hidden=8, layers=2, dropout=0.5), **settings}
    together = simulate(federations, method(), scenario(), **settings)
    alone = simulate(federations[1:], method(), scenario(), chunk=4, **settings)
    for trips, others in zip(alone.trips, together.trips[6:], strict=True):
        for pair, other in zip(trips, others, strict=True):
            for x, y in zip(pair, other, strict=True):
                torch.testing.assert_close(x, y, **TIGHT)
