"""FedSpray: the plain loop, what stays with a client, the server's averages by hand."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.fedspray import FedSpray, initial
from fgl_bench.algorithms.local import Local
from tests.algorithms.comparing import assert_same_trips
from tests.reference import fedspray as plain
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous
from tests.test_equivalence import assert_same, start

KEYS = {"weight": 1.0, "confidence": 0.45, "width": 5, "begin": "own"}


def method(**changes):
    return FedSpray(**{**KEYS, "proxy_lr": 0.02, **changes})


def run(algorithm, **settings):
    federations = [small_federation(seed, sparse=seed == 1) for seed in (0, 1)]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 3, "local_epochs": 2, **settings})


@pytest.mark.parametrize("changes", [{}, {"begin": "joint", "weight": 3.0, "confidence": 0.3}])
def test_it_is_the_plain_loop(changes):
    algorithm = method(**changes)
    result = run(algorithm)
    for s, seed in enumerate((0, 1)):
        shared = initial(algorithm.layout, seed)
        federation = small_federation(seed, sparse=seed == 1)
        trace = plain.run(federation, start(result, 5 * s), shared, rounds=3, epochs=2, **{**KEYS, **changes})
        for number, trained in enumerate(trace):
            for i, expected in enumerate(trained):
                assert_same(result, result.trips[5 * s + i][number][1], expected, 1e-6)


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_without_distillation_clients_train_alone(participation):
    """Bit for bit: models never leave their clients."""
    runs = [run(algorithm, participation=participation) for algorithm in (method(weight=0.0), Local())]
    assert_same_trips(*runs, exact=True, fewest=12)


class Stub:
    """What ``mix`` reads of a run with one seed and three clients."""

    weights = torch.tensor([[1.0, 3.0, 6.0]], dtype=torch.float64)


def test_the_server_averages_encoders_by_size_and_proxies_by_share():
    algorithm = method(width=1)
    algorithm.setting = Stub()
    algorithm.encoders, algorithm.proxies = torch.zeros(1, 2).double(), torch.tensor([[[7.0], [8.0], [9.0]]]).double()
    reports = {
        "encoder": torch.tensor([[[4.0, 0.0], [0.0, 8.0], [100.0, 100.0]]]).double(),
        "proxies": torch.tensor([[[[1.0], [5.0], [0.0]], [[2.0], [0.0], [0.0]], [[50.0], [50.0], [50.0]]]]).double(),
        "shares": torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]).double(),
    }
    mixing = algorithm.mix(reports, torch.tensor([[True, True, False]]))
    assert algorithm.encoders.tolist() == [[1.0, 6.0]]
    torch.testing.assert_close(algorithm.proxies[0, :, 0], torch.tensor([2.5 / 1.5, 5.0, 9.0]).double())
    assert torch.equal(mixing.matrix()[0], torch.eye(3).double())
    algorithm.mix(reports, torch.tensor([[False, False, False]]))
    assert algorithm.encoders.tolist() == [[1.0, 6.0]]


def test_only_training_nodes_have_proxies_of_their_own():
    algorithm = method()
    run(algorithm)
    moved = (algorithm.nodes.view(10, -1, 5) != 0.1).any(-1)
    assert torch.equal(moved, algorithm.setting.batch.train)


def test_what_is_sent():
    history = run(method()).histories[0]
    encoder = 6 * 5 + 5 + 2 * (5 * 3 + 3)
    assert history.upload[2] == 4 * 5 * 2 * (encoder + 3 * 5 + 3)
    assert history.download[2] == 4 * 5 * 2 * (encoder + 3 * 5)
