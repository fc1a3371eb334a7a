"""TWAFL: temporal weights, which layers travel when, limits, bytes, and the plain loop."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.algorithms.twafl import TWAFL
from fgl_bench.models.gamlp import GAMLP
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, watch
from tests.reference import immediate
from tests.reference.semi_async import run_semi_async
from tests.reference.small import small_federation
from tests.scenarios.loops import fixed
from tests.small_runs import semi_async, simulate
from tests.test_equivalence import compare, start

DEFAULTS = {
    "base": math.e / 2, "loop": 15, "exchange_rounds": [11, 12, 13, 14, 0], "deep_layers": 1, "age_unit": "arrival", "normalise": True,
}  # fmt: skip
DEEP = 4 * 3 + 3
NAMES = {"shallow": ("conv0.weight", "conv0.bias"), "deep": ("conv1.weight", "conv1.bias")}


def method(**changes):
    return TWAFL(**{**DEFAULTS, **changes})


def run(algorithm, clients=6, trips=60, scenario=None, seeds=(0, 1), **settings):
    federations = [small_federation(seed, clients=clients) for seed in seeds]
    return simulate(federations, algorithm, scenario or semi_async(), trips=trips, **settings)


@pytest.mark.parametrize(
    ("changes", "plain", "epochs", "lag_unit"),
    [
        ({}, {}, 3, "time"),
        ({"age_unit": "cycle", "loop": 3, "exchange_rounds": [1]}, {"per_round": 6, "loop": 3, "exchange_rounds": (1,)}, 1, "trips"),
        ({"normalise": False, "base": 1.05}, {"normalise": False, "base": 1.05}, 1, "time"),
    ],
)
def test_it_is_the_plain_loop(changes, plain, epochs, lag_unit):
    federations, scenario = [small_federation(seed, clients=6) for seed in (0, 1)], semi_async(lag_unit=lag_unit)
    result = simulate(federations, method(**changes), scenario, trips=60, local_epochs=epochs)
    for s, federation in enumerate(federations):
        trace = run_semi_async(
            federation, immediate.TWAFL(**plain), start(result, s * 6), trips=60, schedule=scenario.schedule(federation.seed, 6),
            buffer=1, lag_unit=lag_unit, local_epochs=epochs,
        )  # fmt: skip
        assert len(trace.arrivals) == 60
        compare(result, trace, 6, s)


def test_weights_by_hand():
    sizes, stamps = np.array([2.0, 1.0, 1.0, 0.0]), np.array([3, 2, 0, -1])
    assert method(base=2.0).weights(sizes, stamps, 3) == pytest.approx(np.array([2, 0.5, 0.125, 0]) / 2.625)
    assert method(base=2.0, normalise=False).weights(sizes, stamps, 4) == pytest.approx(np.array([1, 0.25, 0.0625, 0]) / 4)


@given(
    sizes=st.lists(st.integers(0, 100), min_size=2, max_size=8), ages=st.lists(st.integers(0, 5000), min_size=8, max_size=8),
    base=st.sampled_from([1.0, math.e / 2, math.e, 1e300]),
)  # fmt: skip
def test_weights_are_a_distribution_in_which_newer_samples_count_more(sizes, ages, base):
    sizes, ages = np.array(sizes, dtype=float), np.array(ages[: len(sizes)])
    weights = method(base=base).weights(sizes, 6000 - ages, 6000)
    assert np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() == pytest.approx(1)
    if sizes.sum():
        assert not weights[sizes == 0].any()
        counted = sizes > 0
        per_sample, age = weights[counted] / sizes[counted], ages[counted]
        order = np.argsort(age, kind="stable")
        assert (np.diff(per_sample[order]) <= 1e-12).all()
        assert per_sample[age == age.min()] == pytest.approx(per_sample.max())
    else:
        assert (weights[ages == ages.min()] > 0).all(), "clients without training nodes count alike if there are no others"


def test_equal_ages_give_fedavgs_weights():
    sizes = np.array([3.0, 1.0, 4.0])
    for stamp in (-1, 0, 77):
        assert method().weights(sizes, np.full(3, stamp), 80) == pytest.approx(sizes / 8)


def replay(algorithm, **settings):
    """Run one seed; for every arrival the client, its upload, the reply's model as it was, and its blocks."""
    calls = watch(algorithm, "serve")
    result = run(algorithm, seeds=(0,), **settings)
    return result, [(upload.client, upload.payload, reply.model, reply.blocks) for (_, (upload,)), (reply,) in calls]


def test_without_ageing_and_with_every_layer_it_is_the_mean_of_the_last_uploads():
    result, events = replay(method(base=1.0, loop=1, exchange_rounds=[0]))
    sizes = result.sim.setting.weights[0] / result.sim.setting.weights[0].sum()
    last = result.sim.initial[:6].clone()
    for client, payload, model, blocks in events:
        last[client] = payload
        torch.testing.assert_close(model, sizes @ last, **TIGHT)
        assert blocks is None


def named(result, row):
    return result.named(row)


def test_without_an_exchange_deep_layers_stay_on_the_clients():
    result, events = replay(method(exchange_rounds=[]))
    first = named(result, result.sim.initial[0])
    for _, _, model, blocks in events:
        assert blocks == NAMES["shallow"]
        assert all(torch.equal(named(result, model)[name], first[name]) for name in NAMES["deep"])
    for trips in result.trips[:-1]:
        for (_, trained), (received, _) in zip(trips, trips[1:], strict=False):
            own, mine = named(result, trained), named(result, received)
            assert all(torch.equal(own[name], mine[name]) for name in NAMES["deep"]), "a client keeps its own"
            assert not torch.equal(own["conv0.weight"], mine["conv0.weight"]), "and receives the others'"


def test_a_reply_overwrites_the_layers_that_travel_and_only_those():
    result, events = replay(method())
    trips = [0] * 6
    for client, _, model, blocks in events:
        _, trained = result.trips[client][trips[client]]
        trips[client] += 1
        if trips[client] == len(result.trips[client]):
            continue
        received, _ = result.trips[client][trips[client]]
        sent = NAMES["shallow"] + NAMES["deep"] if blocks is None else blocks
        for name, value in named(result, received).items():
            assert torch.equal(value, named(result, model if name in sent else trained)[name])


def test_deep_copies_keep_the_age_of_the_round_in_which_they_came():
    """Three clients in turn, deep layers every second round: the averages from the uploads, written out."""
    federations = [small_federation(0, clients=3)]
    algorithm = method(base=2.0, loop=2, exchange_rounds=[1])
    calls = watch(algorithm, "serve")
    result = simulate(federations, algorithm, fixed((1, 1, 1)), trips=12)
    sizes = result.sim.setting.weights[0].numpy()
    last = {block: result.sim.initial[:3].clone() for block in NAMES}
    came, expected = {block: np.full(3, -1) for block in NAMES}, named(result, result.sim.initial[0])
    for r, ((_, (upload,)), (reply,)) in enumerate(calls):
        assert upload.client == r % 3 and (reply.blocks is None) == (r % 2 == 1)
        for block in ("shallow", "deep") if r % 2 else ("shallow",):
            last[block][upload.client], came[block][upload.client] = upload.payload, r
            weights = torch.as_tensor(sizes * 2.0 ** (came[block] - r))
            mixed = named(result, weights @ last[block] / weights.sum())
            expected.update({name: mixed[name].clone() for name in NAMES[block]})
        for name, value in named(result, reply.model).items():
            torch.testing.assert_close(value, expected[name], **TIGHT)
    assert came["deep"].tolist() == [9, 7, 11] and came["shallow"].tolist() == [9, 10, 11]


def test_the_rounds_that_exchange_deep_layers():
    algorithm = method()
    assert [r for r in range(31) if algorithm.exchanges(r)] == [0, 11, 12, 13, 14, 15, 26, 27, 28, 29, 30]
    algorithm.setting = SimpleNamespace(num_clients=20)
    assert [algorithm.round_number(v) for v in (0, 1, 20, 41)] == [0, 1, 20, 41]
    cycles = method(age_unit="cycle")
    cycles.setting = algorithm.setting
    assert [cycles.round_number(v) for v in (0, 19, 20, 41)] == [0, 0, 1, 2]


@pytest.mark.parametrize("deep_layers", [0, 1, 2])
def test_bytes_follow_the_layers_that_travel(deep_layers):
    """30 arrivals are two loops: 10 carry everything, 20 leave the deep layers out, in both directions."""
    algorithm = method(deep_layers=deep_layers)
    history = run(algorithm, trips=30, model=GCN(hidden=4, layers=3, dropout=0.0)).histories[0]
    whole, deep = MODEL_SCALARS + 4 * 4 + 4, (0, DEEP, DEEP + 4 * 4 + 4)[deep_layers]
    assert history.upload[-1] == 4 * (30 * whole - 20 * deep)
    assert history.download[-1] == 4 * (6 * whole + 30 * whole - 20 * deep), "the first download is full"


def test_the_deep_layer_is_the_classifier_whatever_the_network_lists_last():
    made = method(deep_layers=1)
    run(made, trips=6, model=GAMLP("auto", 2, 4, 3, 0.0))
    assert made._deep == ("linear2.weight", "linear2.bias")
    assert set(made._shallow) >= {"attention.weight", "attention.bias", "slope", "linear0.weight", "linear1.bias"}
