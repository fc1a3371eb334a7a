"""What batching must not change: seeds together or alone, chunks, dropout, padding."""

from __future__ import annotations

import numpy as np
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.models.gcn import GCN
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous


def test_dropout_changes_training_and_not_evaluation():
    federations = [small_federation(0)]
    with_, without = (
        simulate(federations, FedAvg(), synchronous(), rounds=1, model=GCN(hidden=8, layers=2, dropout=rate)) for rate in (0.5, 0.0)
    )
    assert not torch.equal(with_.trips[0][0][1], without.trips[0][0][1])
    # The initial models are the same, and so are their scores.
    np.testing.assert_array_equal(with_.histories[0].scores["received"][0], without.histories[0].scores["received"][0])


def test_partial_participation_trains_the_drawn_clients_only():
    federations = [small_federation(seed, clients=6) for seed in (0, 1)]
    result = simulate(federations, FedAvg(), synchronous(), rounds=5, participation=0.5, eval_every=3)
    for s in (0, 1):
        assert sum(len(result.trips[s * 6 + i]) for i in range(6)) == 15
        assert result.histories[s].trips.tolist() == [0, 3, 6, 9, 12, 15]
        first = [trip[0][0] for trip in result.trips[s * 6 : s * 6 + 6] if trip]
        drawn_later = [received for trip in result.trips[s * 6 : s * 6 + 6] for received, _ in trip[1:]]
        # Everybody's next trip starts from a global model, which has moved on from the initial one.
        assert drawn_later and not any(torch.equal(received, result.sim.initial[s * 6]) for received in drawn_later)
        assert sum(torch.equal(received, result.sim.initial[s * 6]) for received in first) == 3
