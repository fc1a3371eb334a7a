"""FedAvg: weights, matrix, bytes, and its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.local import Local
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.engine.graphs import federation
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous


def run(federations, rounds=3, **settings):
    return simulate(federations, FedAvg(), synchronous(), rounds=rounds, **settings)


@pytest.mark.parametrize("agg_weight", ["train", "nodes", "uniform"])
def test_everybody_receives_the_mean_weighted_by_size(agg_weight):
    federations = [small_federation(seed) for seed in (0, 1)]
    result = run(federations, agg_weight=agg_weight)
    for s, federated in enumerate(federations):
        sizes = [{"train": c.train.sum(), "nodes": c.num_nodes, "uniform": 1}[agg_weight] for c in federated.clients]
        shares = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
        trips = result.trips[s * 5 : s * 5 + 5]
        for number in range(2):
            mean = sum(share * trip[number][1] for share, trip in zip(shares, trips, strict=True))
            for trip in trips:
                torch.testing.assert_close(trip[number + 1][0], mean, **TIGHT)


def test_the_matrix_has_equal_rows_of_shares_and_is_idempotent():
    federated = small_federation(0)
    matrix = run([federated], mixing_at=(10,)).sim.mixing[10][0]
    sizes = torch.tensor([int(c.train.sum()) for c in federated.clients], dtype=torch.float64)
    torch.testing.assert_close(matrix, (sizes / sizes.sum()).expand(5, 5))
    torch.testing.assert_close(matrix @ matrix, matrix)
    assert matrix[0, -1] == 0, "a client without training nodes has no weight"


def test_one_client_is_local_training():
    alone = small_federation(0, clients=1)
    assert_same_trips(run([alone]), simulate([alone], Local(), synchronous(), rounds=3), fewest=3)


def test_a_round_in_which_nobody_has_training_nodes_changes_nothing():
    empty = [replace(c, train=np.zeros_like(c.train)) for c in small_federation(0).clients]
    result = run([federation(empty)], rounds=3)
    for trips in result.trips:
        for received, trained in trips:
            torch.testing.assert_close(received, result.sim.initial[0], **TIGHT)
            torch.testing.assert_close(trained, result.sim.initial[0], **TIGHT)


def test_bytes_are_one_model_up_and_one_down_for_every_trip():
    history = run([small_federation(0)], rounds=3).histories[0]
    assert history.trips.tolist() == [0, 5, 10, 15]
    assert history.upload.tolist() == history.download.tolist() == [n * 4 * MODEL_SCALARS for n in (0, 5, 10, 15)]
    part = run([small_federation(0, clients=6)], rounds=4, participation=0.5).histories[0]
    assert part.upload[-1] == 12 * 4 * MODEL_SCALARS


def test_a_step_of_the_clients_moves_the_received_model_and_never_the_servers_copy():
    """Models are copied on the way out: what one client trains does not leak into what another one received."""
    result = run([small_federation(0)])
    for trips in result.trips:
        assert torch.equal(trips[0][0], result.sim.initial[0])
    received = [trip[1][0] for trip in result.trips]
    assert all(torch.equal(row, received[0]) for row in received)
    assert not torch.equal(result.trips[0][1][1], received[0])
