"""Local training: what others do makes no difference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fgl_bench.algorithms.local import Local
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import assert_same_trips
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

MODEL = GCN(hidden=4, layers=2, dropout=0.5)


def run(federation, **settings):
    return simulate([federation], Local(), synchronous(), model=MODEL, **{"rounds": 4, **settings})


def test_a_client_does_not_depend_on_the_others():
    whole = small_federation(0)
    part = replace(whole, clients=whole.clients[:2], observed=whole.observed[:2])
    alone, together = run(part), run(whole)
    together.trips = together.trips[:2]
    assert_same_trips(alone, together, fewest=8)


def test_a_clients_nth_trip_does_not_depend_on_participation():
    some, all_ = run(small_federation(0), participation=0.4, rounds=10), run(small_federation(0), rounds=10)
    assert 0 < min(len(trips) for trips in some.trips) < 10
    assert_same_trips(some, all_, fewest=20)


def test_every_trip_begins_where_the_last_one_ended():
    for trips in run(small_federation(0)).trips:
        for (_, trained), (received, _) in zip(trips, trips[1:], strict=False):
            assert torch.equal(trained, received)


@pytest.mark.parametrize("opt_state", ["persist", "reset"])
def test_epochs_in_one_trip_or_in_many(opt_state):
    """With a persistent optimiser and no dropout three trips of one epoch are one trip of three."""
    model = GCN(hidden=4, layers=2, dropout=0.0)
    many, one = (
        simulate([small_federation(0)], Local(), synchronous(), rounds=r, local_epochs=e, model=model, opt_state=opt_state)
        for r, e in ((3, 1), (1, 3))
    )
    for a, b in zip(many.trips, one.trips, strict=True):
        if opt_state == "persist" or torch.equal(b[0][0], b[0][1]):
            torch.testing.assert_close(a[-1][1], b[-1][1], rtol=1e-9, atol=1e-9)
        else:
            assert not torch.allclose(a[-1][1], b[-1][1], rtol=1e-6, atol=1e-6)


def test_the_client_without_training_nodes_keeps_its_model():
    result = run(small_federation(0))
    assert all(torch.equal(trained, result.sim.initial[-1]) for _, trained in result.trips[-1])


def test_nothing_travels_and_the_matrix_is_the_identity():
    result = run(small_federation(0), mixing_at=(10,))
    assert not result.histories[0].upload.any() and not result.histories[0].download.any()
    assert torch.equal(result.sim.mixing[10][0], torch.eye(5, dtype=torch.float64))
