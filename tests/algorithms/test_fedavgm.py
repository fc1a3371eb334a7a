"""FedAvgM: momentum on the server, and FedAvg where there is none."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedavgm import FedAvgM
from tests.algorithms.comparing import assert_same_trips
from tests.algorithms.stateful import assert_follows
from tests.reference import server_steps
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous


def run(algorithm, scenario=None, **settings):
    federations = [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, scenario or synchronous(), **{"rounds": 4, "local_epochs": 2, **settings})


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_it_is_the_plain_loop(participation):
    keys = {"momentum": 0.7, "server_lr": 0.6}
    assert_follows(lambda: FedAvgM(**keys), lambda: server_steps.FedAvgM(**keys), participation=participation, local_epochs=2)


def test_without_momentum_and_with_a_whole_step_it_is_fedavg():
    assert_same_trips(run(FedAvgM(momentum=0.0, server_lr=1.0)), run(FedAvg()), fewest=40)


def test_by_hand():
    method = FedAvgM(momentum=0.5, server_lr=2.0)
    method.velocity = torch.tensor([[[1.0, 0.0]]])
    previous, received = torch.zeros(1, 2, 2), torch.ones(1, 2, 2)
    for expected in ([3.0, 2.0], [3.5, 3.0]):  # v = 0.5 v + 1 = 1.5, 1 and then 1.75, 1.5
        step = method.refine(previous, received, received, torch.ones(1, 2, dtype=torch.bool))
        assert step.tolist() == [[expected, expected]]


def test_a_round_without_uploads_leaves_the_velocity_alone():
    method = FedAvgM(momentum=0.5, server_lr=1.0)
    method.velocity = torch.full((2, 1, 3), 4.0)
    arrived = torch.tensor([[True, False], [False, False]])
    method.refine(torch.zeros(2, 2, 3), torch.zeros(2, 2, 3), torch.zeros(2, 2, 3), arrived)
    assert method.velocity[:, 0, 0].tolist() == [2.0, 4.0]


def test_a_deadline_that_nobody_meets_keeps_the_models():
    result = run(FedAvgM(momentum=0.9, server_lr=1.0), synchronous(deadline=0.5, slow_fraction=1.0))
    for trips in result.trips:
        assert all(torch.equal(received, trips[0][0]) for received, _ in trips)
