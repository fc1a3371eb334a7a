"""SCAFFOLD: control variates, limits, bytes, and the plain loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fgl_bench.algorithms.local import Local
from fgl_bench.algorithms.scaffold import Scaffold
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, UniformAverage, assert_same_trips
from tests.algorithms.stateful import assert_follows, same_rows, watch_states
from tests.engine.graphs import federation
from tests.reference.small import small_federation
from tests.reference.stateful import SCAFFOLD
from tests.small_runs import simulate, synchronous


def method(**changes):
    return Scaffold(**{"server_lr": 1.0, "control": "mean_gradient", "weighting": "uniform", **changes})


def run(algorithm, scenario=None, clients=6, **settings):
    federations = [small_federation(seed, clients=clients) for seed in (0, 1)]
    return simulate(federations, algorithm, scenario or synchronous(), **{"rounds": 5, "local_epochs": 3, **settings})


@pytest.mark.parametrize(
    ("changes", "plain", "epochs", "participation"),
    [({"server_lr": 0.6}, {"server_lr": 0.6}, 1, 0.5), ({"weighting": "samples"}, {"weighting": "train"}, 3, 1.0)],
)
def test_it_is_the_plain_loop(changes, plain, participation, epochs):
    assert_follows(lambda: method(**changes), lambda: SCAFFOLD(**plain), participation=participation, local_epochs=epochs)


def test_the_literal_option_is_the_plain_loops():
    literal = {"local_epochs": 3, "participation": 0.5, "rounds": 3}
    # Its variates are a hundred times the displacements: rounding grows with them.
    assert_follows(lambda: method(control="option_ii_literal"), lambda: SCAFFOLD(literal=True), tolerance=1e-6, **literal)


def test_the_first_round_is_the_uniform_average_bit_for_bit():
    assert_same_trips(run(method(), rounds=1), run(UniformAverage(), rounds=1), exact=True, fewest=12)
    for a, b in zip(run(method(), rounds=2).trips, run(UniformAverage(), rounds=2).trips, strict=True):
        assert torch.equal(a[1][0], b[1][0])


def test_a_single_client_is_trained_locally():
    alone = small_federation(0, clients=1)
    corrected, local = (simulate([alone], m, synchronous(), rounds=5, local_epochs=2) for m in (method(), Local()))
    assert_same_trips(corrected, local, fewest=5)


@pytest.mark.parametrize(
    ("control", "participation", "deadline"), [("mean_gradient", 0.5, None), ("option_ii_literal", 1.0, None), ("mean_gradient", 1.0, 1.5)]
)
def test_c_is_the_mean_of_all_variates_and_only_participants_change_theirs(control, participation, deadline):
    algorithm = method(control=control)
    states = watch_states(algorithm, "variates", "correction")
    scenario = synchronous(slow_fraction=0.4, deadline=deadline)
    run(algorithm, scenario, participation=participation, rounds=6)
    before = torch.zeros_like(states[0]["variates"])
    server = before.mean(1)
    for state in states:
        server = server + (state["variates"] - before).sum(1) / 6  # the paper's update of c
        torch.testing.assert_close(state["correction"], server[:, None] - state["variates"], **TIGHT)
        torch.testing.assert_close(state["correction"].sum(1), torch.zeros_like(server), rtol=0, atol=1e-9)
        assert same_rows(state["variates"], before)[~state["arrived"]].all()
        changed = ~same_rows(state["variates"], before) & state["arrived"]
        assert changed[:, :-1].sum() == state["arrived"][:, :-1].sum(), "who has training nodes has a new variate"
        assert not changed[:, -1].any(), "who has none keeps zero"
        before = state["variates"]
    if deadline:
        assert not states[0]["arrived"].all()


def test_the_variate_is_the_loss_gradient_without_weight_decay():
    decayed, plain = method(), method()
    run(decayed, rounds=1, local_epochs=1, weight_decay=0.3)
    run(plain, rounds=1, local_epochs=1, weight_decay=0.0)
    assert torch.equal(decayed.variates, plain.variates) and decayed.variates.abs().max() > 1e-3


def test_bytes_are_two_models_each_way():
    history = run(method(), participation=0.5, rounds=4).histories[0]
    assert history.upload[-1] == history.download[-1] == 12 * 4 * 2 * MODEL_SCALARS


def test_nobody_with_training_nodes_changes_nothing():
    clients = [replace(c, train=c.train & False) for c in small_federation(0).clients]
    result = simulate([federation(clients)], method(control="option_ii_literal"), synchronous(), rounds=3, model=GCN(4, 2, 0.0))
    assert all(torch.allclose(row, result.sim.initial[0]) for trips in result.trips for pair in trips for row in pair)
