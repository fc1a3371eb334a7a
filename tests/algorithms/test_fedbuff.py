"""FedBuff: limits, the server step by hand, staleness, bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedbuff import FedBuff
from fgl_bench.errors import UserError
from tests.algorithms.comparing import MODEL_SCALARS, UniformAverage, arrivals, assert_same_trips, server, watch
from tests.reference.small import small_federation
from tests.small_runs import semi_async, simulate, synchronous
from tests.test_equivalence import BUFF


def method(**changes):
    return FedBuff(**{**BUFF, **changes})


def run(algorithm, clients=5, trips=25, seeds=(0, 1), scenario=None, **settings):
    federations = [small_federation(seed, clients=clients) for seed in seeds]
    return simulate(federations, algorithm, scenario or semi_async(), trips=trips, **settings)


@pytest.mark.parametrize(
    ("lag_unit", "slow_fraction", "weighting", "barrier"),
    [("trips", 0.4, "uniform", UniformAverage), ("time", 0.4, "samples", FedAvg), ("time", 0.0, "uniform", UniformAverage)],
)
def test_waiting_for_everybody_is_fedavg_under_any_stragglers(lag_unit, slow_fraction, weighting, barrier):
    scenario = semi_async(lag_unit=lag_unit, slow_fraction=slow_fraction)
    buffered = run(method(buffer=5, staleness_exponent=0.0, weighting=weighting), scenario=scenario, local_epochs=2)
    rounds = simulate([small_federation(seed) for seed in (0, 1)], barrier(), synchronous(), rounds=5, local_epochs=2)
    assert_same_trips(buffered, rounds, fewest=50)
    for one, other in zip(buffered.histories, rounds.histories, strict=True):
        np.testing.assert_array_equal(one.version, other.version)
        for model in ("received", "trained"):
            np.testing.assert_array_equal(one.scores[model], other.scores[model])


def test_the_server_step_by_hand():
    # Versions 3 made now; client 0 began at version 2 (fresh), client 1 at version 0 (two versions late).
    state = server([[4.0, 0.0], [0.0, 6.0], [9.0, 9.0]], version=3, base_version=[2, 0, 2], weights=[3, 1, 5])
    state.model = torch.tensor([1.0, 1.0], dtype=torch.float64)
    algorithm = method(buffer=2, server_lr=0.5, staleness_exponent=1.0)
    messages = algorithm.serve(state, arrivals(state, [0, 1]))
    # w + 0.5 / 2 * (1 * [4, 0] + 1/3 * [0, 6])
    assert state.model.tolist() == pytest.approx([2.0, 1.5])
    assert [m.client for m in messages] == [0, 1] and all(m.confidence is None for m in messages)
    state.model = torch.zeros(2, dtype=torch.float64)
    method(buffer=2, staleness_exponent=0.0, weighting="samples").serve(state, arrivals(state, [0, 1]))
    # omega = 2 n_k / (3 + 1) = 1.5 and 0.5: w + (1.5 * [4, 0] + 0.5 * [0, 6]) / 2
    assert state.model.tolist() == pytest.approx([3.0, 1.5])


def test_a_client_twice_in_the_buffer_counts_twice_and_is_answered_once():
    state = server([[2.0], [1.0]], version=1)
    messages = method(buffer=3, staleness_exponent=0.0).serve(state, arrivals(state, [0, 1, 0]))
    assert state.model.item() == pytest.approx((2 + 1 + 2) / 3)
    assert [m.client for m in messages] == [0, 1]


def test_what_is_uploaded_is_the_difference():
    received, trained = torch.tensor([1.0, 2.0]), torch.tensor([1.5, 1.0])
    assert method().upload((0,), received, trained).tolist() == [0.5, -1.0]


@pytest.mark.parametrize("buffer", [1, 2, 3, 6])
def test_without_stragglers_no_upload_is_older_than_a_cycle_of_steps(buffer):
    algorithm = method(buffer=buffer)
    calls = watch(algorithm, "serve")
    run(algorithm, clients=6, trips=60, seeds=(0,), scenario=semi_async(slow_fraction=0.0, jitter=0.0))
    staleness = [upload.staleness for (_, uploads), _ in calls for upload in uploads]
    assert min(staleness) == 0 and max(staleness) < 6 / buffer


@pytest.mark.parametrize("wait", [True, False])
def test_bytes_by_hand(wait):
    clients, trips, buffer = 5, 25, 2
    history = run(method(buffer=buffer, wait=wait), trips=trips).histories[0]
    message = 4 * (MODEL_SCALARS + 1)  # the model or difference, and a version
    assert history.upload.tolist() == [n * message for n in (0, 5, 10, 15, 20, 25)]
    # Everybody downloads once to begin. Who waits is answered by the steps (25 // 2 of them), who does not downloads at once.
    answered = buffer * (trips // buffer) if wait else trips
    assert history.download[-1] == (clients + answered) * message


@pytest.mark.parametrize(("clients", "expected"), [(20, 5), (10, 2), (4, 1), (2, 1), (1, 1)])
def test_the_default_buffer_is_a_quarter_of_the_clients(clients, expected):
    algorithm = method(buffer=None)
    algorithm.setting = type("Setting", (), {"num_clients": clients})()
    assert algorithm.buffer_size() == expected


@pytest.mark.parametrize("buffer", [0, 6])
def test_a_buffer_that_never_fills_is_refused(buffer):
    with pytest.raises(UserError, match=rf"algorithm.buffer={buffer} .*allowed: (1 to 5|1 or more)"):
        run(method(buffer=buffer))
