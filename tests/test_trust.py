"""What batching must not change: seeds together or alone, chunks, dropout, padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedgta import FedGTA
from fgl_bench.algorithms.fedsa_gcl import FedSAGCL
from fgl_bench.models.gcn import GCN
from tests.reference.small import small_federation
from tests.small_runs import semi_async, simulate, synchronous
from tests.test_equivalence import GTA, SAGCL

METHODS = {
    "fedavg": (lambda: FedAvg(), synchronous),
    "fedgta": (lambda: FedGTA(**GTA), synchronous),
    "fedsa_gcl": (lambda: FedSAGCL(**SAGCL), semi_async),
}


def run(name, federations, **settings):
    method, scenario = METHODS[name]
    model = GCN(hidden=8, layers=2, dropout=0.5)
    return simulate(federations, method(), scenario(), rounds=6, local_epochs=2, model=model, **settings)


def assert_equal(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a.trips, b.trips)
        np.testing.assert_array_equal(a.download, b.download)
        for model in ("received", "trained"):
            np.testing.assert_array_equal(a.scores[model], b.scores[model])


@pytest.mark.parametrize("name", METHODS)
def test_a_seed_alone_equals_the_seed_in_the_batch(name):
    federations = [small_federation(seed, clients=6) for seed in range(5)]
    together = run(name, federations)
    for s in (0, 3):
        alone = run(name, federations[s : s + 1])
        assert_equal(alone.histories, together.histories[s : s + 1])
        for replica in range(6):
            for (_, a), (_, b) in zip(alone.trips[replica], together.trips[s * 6 + replica], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("chunk", [1, 4, 7])
def test_chunks_change_nothing(name, chunk):
    federations = [small_federation(seed, clients=6) for seed in range(2)]
    whole, chunked = run(name, federations), run(name, federations, chunk=chunk)
    assert_equal(whole.histories, chunked.histories)
    for a, b in zip(whole.trips, chunked.trips, strict=True):
        for (_, x), (_, y) in zip(a, b, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_running_again_gives_the_same_bits(name):
    federations = [small_federation(seed, clients=5) for seed in range(2)]
    first, second = run(name, federations, dtype="float32"), run(name, federations, dtype="float32")
    for a, b in zip(first.trips, second.trips, strict=True):
        assert all(torch.equal(x, y) for (_, x), (_, y) in zip(a, b, strict=True))


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
