"""FedAsync: staleness functions, the server step by hand, limits, bytes, and the plain loop."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fgl_bench.algorithms.fedasync import FedAsync
from fgl_bench.algorithms.local import Local
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, arrivals, assert_same_trips, server
from tests.reference import immediate
from tests.reference.semi_async import run_semi_async
from tests.reference.small import small_federation
from tests.scenarios.loops import watched_loops
from tests.small_runs import semi_async, simulate, synchronous
from tests.test_equivalence import compare, start

DEFAULTS = {
    "alpha": 0.6, "staleness": "polynomial", "exponent": 0.5, "hinge_slope": 10.0, "hinge_b": None, "staleness_unit": "version",
    "offset": 0, "halve_after": None, "rho": 0.005,
}  # fmt: skip


def method(**changes):
    return FedAsync(**{**DEFAULTS, **changes})


def run(algorithm, clients=6, trips=40, scenario=None, seeds=(0, 1), **settings):
    federations = [small_federation(seed, clients=clients) for seed in seeds]
    return simulate(federations, algorithm, scenario or semi_async(), trips=trips, **settings)


def weigher(clients=20, **changes):
    """The mixing weight as a function of staleness (and of the version being made)."""
    algorithm = method(**changes)
    algorithm.setting = SimpleNamespace(num_clients=clients)
    return lambda staleness, version=10**6: algorithm.mixing_weight(staleness, version)


@pytest.mark.parametrize(
    ("changes", "plain"),
    [
        ({}, {"rho": 0.005}),
        (
            {"staleness": "constant", "alpha": 0.9, "rho": 0.5, "halve_after": 20},
            {"staleness": lambda s: 1, "alpha": 0.9, "rho": 0.5, "halve_after": 20},
        ),
        ({"staleness": "hinge"}, {"staleness": lambda s: 1 if s <= 6 else 1 / (1 + 10 * (s - 6)), "rho": 0.005}),
        (
            {"staleness": "hinge", "staleness_unit": "cycle", "hinge_b": 0.5, "hinge_slope": 2.0},
            {"staleness": lambda s: 1 if s <= 3 else 1 / (1 + 2 * (s / 6 - 0.5)), "rho": 0.005},
        ),
        ({"offset": 1, "exponent": 1.0}, {"staleness": lambda s: 1 / (2 + s), "rho": 0.005}),
    ],
)  # fmt: skip
def test_it_is_the_plain_loop(changes, plain):
    epochs, lag_unit = (3, "time") if "offset" in changes or "halve_after" in changes else (1, "trips")
    federations, scenario = [small_federation(seed, clients=6) for seed in (0, 1)], semi_async(lag_unit=lag_unit)
    result = simulate(federations, method(**changes), scenario, trips=60, local_epochs=epochs)
    for s, federation in enumerate(federations):
        reference = immediate.FedAsync(**{"staleness": lambda staleness: (1 + staleness) ** -0.5, **plain})
        trace = run_semi_async(
            federation, reference, start(result, s * 6), trips=60, schedule=scenario.schedule(federation.seed, 6), buffer=1,
            lag_unit=lag_unit, local_epochs=epochs,
        )  # fmt: skip
        assert len(trace.arrivals) == len(trace.steps) == 60
        compare(result, trace, 6, s)


def test_weights_by_hand():
    assert [weigher(alpha=0.5)(s) for s in (0, 3, 8)] == pytest.approx([0.5, 0.25, 0.5 / 3])
    hinge = weigher(alpha=1.0, staleness="hinge", hinge_b=4)
    assert [hinge(s) for s in (0, 4, 5, 19)] == pytest.approx([1, 1, 1 / 11, 1 / 151])
    assert [weigher(alpha=1.0, staleness="hinge")(s) for s in (19, 20, 21)] == pytest.approx([1, 1, 1 / 11])
    cycles = weigher(alpha=1.0, staleness="hinge", staleness_unit="cycle")
    assert [cycles(s) for s in (20, 30)] == pytest.approx([1, 1 / 6]), "b is one cycle in either unit"
    assert weigher(alpha=1.0, staleness_unit="cycle")(60) == pytest.approx(0.5)
    assert weigher(alpha=1.0, offset=1)(3) == pytest.approx(5**-0.5)
    late = weigher(alpha=0.8, staleness="constant", halve_after=800)
    assert [late(0, version) for version in (1, 800, 801, 2000)] == [0.8, 0.8, 0.4, 0.4]


def test_the_server_step_by_hand():
    """From 4 an upload 8, three versions old, is mixed with half of 0.6: 0.7 * 4 + 0.3 * 8."""
    algorithm, state = method(), server([[8.0], [2.0]], version=5, base_version=[1, 4])
    state.model = torch.tensor([4.0], dtype=torch.float64)
    (reply,) = algorithm_on(algorithm, 2).serve(state, arrivals(state, [0]))
    assert reply.client == 0 and reply.confidence is None and reply.blocks is None
    assert state.model.item() == reply.model.item() == pytest.approx(0.7 * 4 + 0.3 * 8)


def algorithm_on(algorithm, clients):
    algorithm.setting = SimpleNamespace(num_clients=clients)
    return algorithm


def test_with_weight_zero_the_model_stays_the_initial_one():
    result = run(method(alpha=0.0))
    for row, trips in enumerate(result.trips):
        assert all(torch.equal(received, result.sim.initial[row]) for received, _ in trips)


@pytest.mark.parametrize("changes", [{"rho": 0.0, "local_epochs": 3}, {"rho": 7.0, "local_epochs": 1}])
def test_one_client_with_weight_one_is_local_training(changes):
    epochs = changes.pop("local_epochs")
    alone = [small_federation(0, clients=1)]
    mixed = simulate(alone, method(alpha=1.0, **changes), semi_async(), trips=6, local_epochs=epochs)
    assert_same_trips(mixed, simulate(alone, Local(), synchronous(), rounds=6, local_epochs=epochs), fewest=6)


def test_the_pull_does_nothing_at_one_epoch_and_something_at_three():
    model = GCN(hidden=4, layers=2, dropout=0.5)
    weak, strong = (run(method(rho=rho), model=model) for rho in (0.0, 30.0))
    assert_same_trips(weak, strong, exact=True, fewest=80)
    weak, strong = (run(method(rho=rho), model=model, local_epochs=3) for rho in (0.0, 30.0))
    assert not torch.allclose(weak.trips[0][0][1], strong.trips[0][0][1], rtol=1e-3, atol=1e-3)


def test_without_stragglers_everybody_is_a_cycle_stale():
    with watched_loops() as loops:
        run(method(), scenario=semi_async(slow_fraction=0.0, jitter=0.0), trips=24, seeds=(0,))
    assert [uploads[0][2] for *_, uploads in loops[0].steps] == [0, 1, 2, 3, 4, 5] + [5] * 18


def test_bytes_are_a_model_and_a_version_for_every_message():
    history = run(method()).histories[0]
    assert history.upload[-1] == 40 * 4 * (MODEL_SCALARS + 1)
    assert history.download[-1] == (6 + 40) * 4 * (MODEL_SCALARS + 1), "everybody's first download, and a reply to every upload"
