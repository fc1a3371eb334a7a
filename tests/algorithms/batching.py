"""What batching must not change, for any method: seeds together or alone, chunks, repeats."""

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
    again = simulate(federations, method(), scenario(), **settings)
    for a, b in zip(together.trips, again.trips, strict=True):
        assert all(torch.equal(x, y) for pair, other in zip(a, b, strict=True) for x, y in zip(pair, other, strict=True))
    others = [
        (simulate(federations[1:], method(), scenario(), **settings), 6),
        (simulate(federations, method(), scenario(), chunk=4, **settings), 0),
    ]
    for run, first in others:
        for row, trips in enumerate(run.trips):
            for pair, other in zip(trips, together.trips[first + row], strict=True):
                for x, y in zip(pair, other, strict=True):
                    torch.testing.assert_close(x, y, **TIGHT)
