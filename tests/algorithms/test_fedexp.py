"""FedExP: the server's step is longer where the clients' changes point in different directions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedexp import FedExP
from tests.algorithms.comparing import MODEL_SCALARS, assert_same_trips, watch
from tests.algorithms.stateful import assert_follows
from tests.reference import personal
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous


def run(algorithm, **settings):
    federations = [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 4, "local_epochs": 3, **settings})


@pytest.mark.parametrize(("epsilon", "participation"), [(0.0, 1.0), (1e-3, 0.5)])
def test_it_is_the_plain_loop(epsilon, participation):
    method = FedExP(epsilon)
    calls = watch(method, "refine")
    assert_follows(lambda: method, lambda: personal.FedExP(epsilon), participation=participation, local_epochs=2)
    longer = [not torch.equal(result, arguments[1]) for arguments, result in calls]
    assert any(longer), "no round had a longer step"


@pytest.mark.parametrize(
    ("changes", "epsilon", "scale"),
    [
        ([[2.0, 0.0], [0.0, 2.0]], 0.0, 1.0),  # mean norm 4, squared norm of the mean 2: 4 / (2 * 2)
        ([[4.0, 0.0], [-2.0, 0.0]], 0.0, 5.0),  # mean norm 10, squared norm of the mean 1
        ([[4.0, 0.0], [-2.0, 0.0]], 1.0, 2.5),
        ([[4.0, 0.0], [-2.0, 0.0]], 9.0, 1.0),  # 10 / (2 * 10) is below 1
        ([[0.0, 0.0], [0.0, 0.0]], 0.0, 1.0),
    ],
)
def test_by_hand(changes, epsilon, scale):
    method, previous, here = FedExP(epsilon), torch.ones(1, 2, 2), torch.ones(1, 2, dtype=torch.bool)
    method.setting = SimpleNamespace(weights=torch.ones(1, 2, dtype=torch.float64), full_participation=True)
    trained = previous + torch.tensor([changes])
    trips = SimpleNamespace(received=previous[0], trained=trained[0])
    mixing = method.mix({name: value[None] for name, value in method.report(trips).items()}, here)
    received = mixing.apply(trained, previous.clone(), None)
    refined = method.refine(previous, received, trained, here)
    torch.testing.assert_close(refined, 1 + scale * torch.tensor([changes]).mean(1, keepdim=True).expand(1, 2, 2))


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_with_a_large_epsilon_it_is_fedavg_bit_for_bit(participation):
    exp, avg = run(FedExP(1e30), participation=participation), run(FedAvg(), participation=participation)
    assert_same_trips(exp, avg, exact=True, fewest=24)


def test_nothing_travels_in_addition_to_the_models():
    history = run(FedExP(1e-3)).histories[0]
    assert history.upload[-1] == history.download[-1] == 20 * 4 * MODEL_SCALARS
