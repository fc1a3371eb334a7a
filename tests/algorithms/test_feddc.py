"""FedDC: drifts, gradient states, limits, bytes, and the plain loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.feddc import FedDC
from fgl_bench.algorithms.scaffold import Scaffold
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.stateful import assert_follows, same_rows, watch_states
from tests.reference import stateful
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

DEFAULTS = {"alpha": 0.01, "scaling": "size", "clip": 10.0, "drift": True, "control": "mean_gradient", "weighting": "uniform"}
PLAIN = {"alpha": 0.0, "scaling": "none", "clip": None, "drift": False}


def method(**changes):
    return FedDC(**{**DEFAULTS, **changes})


def run(algorithm, scenario=None, **settings):
    federations = [small_federation(seed, clients=6) for seed in (0, 1)]
    return simulate(federations, algorithm, scenario or synchronous(), **{"rounds": 5, "local_epochs": 3, **settings})


@pytest.mark.parametrize(
    ("changes", "epochs", "participation"), [({"alpha": 0.5, "clip": None}, 1, 0.5), ({"alpha": 0.1, "clip": 0.3}, 3, 1.0)]
)
def test_it_is_the_plain_loop(changes, participation, epochs):
    assert_follows(lambda: method(**changes), lambda: stateful.FedDC(**changes), participation=participation, local_epochs=epochs)


@pytest.mark.parametrize("control", ["mean_gradient", "literal"])
def test_unscaled_it_is_the_plain_loop_too(control):
    # The literal state is a hundred times the displacement: rounding grows with it.
    assert_follows(
        lambda: method(scaling="none", alpha=0.1, control=control),
        lambda: stateful.FedDC(scaled=False, alpha=0.1, literal=control == "literal"),
        participation=0.5, local_epochs=2, rounds=4, tolerance=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_without_pull_and_drift_it_is_scaffold(participation):
    scaffold = Scaffold(server_lr=1.0, control="mean_gradient", weighting="uniform")
    settings = {"participation": participation, "rounds": 6}
    assert_same_trips(run(method(**PLAIN), **settings), run(scaffold, **settings), fewest=36)


@pytest.mark.parametrize(("participation", "deadline"), [(1.0, None), (0.5, None), (1.0, 1.5)])
def test_a_drift_is_the_sum_of_its_clients_moves_and_states_are_averaged(participation, deadline):
    algorithm = method(alpha=0.1)
    states = watch_states(algorithm, "drifts", "states", "correction")
    result = run(algorithm, synchronous(slow_fraction=0.4, deadline=deadline), participation=participation, rounds=6)
    moved, trips = torch.zeros_like(states[0]["drifts"]), [iter(trips) for trips in result.trips]
    before, cloud = torch.zeros_like(moved), torch.zeros_like(moved[:, :1])
    size, alpha = algorithm._size, 0.1 * algorithm._inverse
    for number, state in enumerate(states):
        here = state["arrived"]
        for s in (0, 1):
            took_part = range(6) if participation == 1 else synchronous().draw([s], number, 3, 6)[0].nonzero()[0]
            for i in took_part:
                received, trained = next(trips[s * 6 + i])
                moved[s, i] += (trained - received) * here[s, i]
        torch.testing.assert_close(state["drifts"], moved, **TIGHT)
        assert same_rows(state["states"], before)[~here].all() and not state["states"][:, -1].any()
        # The cloud's state a by the code's recursion, and what it makes of the added gradient.
        cloud = cloud + (size * (state["states"] - before)).sum(1, keepdim=True) / 6
        expected = cloud * algorithm._inverse - state["states"] + alpha * state["drifts"]
        torch.testing.assert_close(state["correction"], expected, **TIGHT)
        before = state["states"]
    assert not deadline or not states[0]["arrived"].all()


def test_the_added_gradient_by_hand():
    """alpha (theta - (w - h)) + a/n - a_i for a client of twice the mean size, then clipped to length 2."""
    algorithm = method(alpha=0.4, clip=None)
    algorithm.correction = torch.tensor([[[0.2 * 1.5 + 0.25 - 0.75]]])  # alpha_i = 0.2, h = 1.5, a = 0.5, a_i = 0.75
    algorithm._alpha = torch.tensor([[[0.2]]])
    batch = type("Batch", (), {"size": 1, "num_train": np.ones(1)})()
    step = type("Step", (), {"epoch": 0, "batch": batch, "theta": torch.tensor([[3.0]]), "received": torch.tensor([[3.0]])})()
    first = algorithm.correct_gradient(step, torch.tensor([[1.0]])).clone()
    assert first.item() == pytest.approx(1.0 + 0.2 * (3 - (3 - 1.5)) + 0.5 / 2 - 0.75)
    step.epoch, step.theta = 1, torch.tensor([[5.0]])
    second = algorithm.correct_gradient(step, torch.tensor([[7.0]]))
    assert second.item() == pytest.approx(7.0 + 0.2 * (5 - (3 - 1.5)) + 0.5 / 2 - 0.75)
    assert algorithm._sum.item() == pytest.approx(first.item() + second.item())
    clipped = method(clip=2.0)
    clipped.correction, clipped._alpha, step.epoch = torch.zeros(1, 1, 2), torch.zeros(1, 1, 1), 0
    assert clipped.correct_gradient(step, torch.tensor([[3.0, -4.0]])).tolist()[0] == pytest.approx([1.2, -1.6], rel=1e-5)
    assert clipped.correct_gradient(step, torch.tensor([[0.3, -0.4]])).tolist()[0] == pytest.approx([0.3, -0.4])


def test_the_pull_bounds_the_drifts():
    """Without one they are larger, and nothing holds them; with one their swings do not grow."""
    norms = {}
    for alpha in (0.0, 1.0):
        algorithm = method(alpha=alpha, scaling="none")
        states = watch_states(algorithm, "drifts")
        run(algorithm, rounds=60, local_epochs=1)
        norms[alpha] = [state["drifts"].norm().item() for state in states]
    assert norms[1.0][-1] < norms[0.0][-1]
    assert max(norms[1.0][30:]) < 2 * max(norms[1.0][:30])


def test_bytes_are_two_models_each_way():
    history = run(method(), participation=0.5, rounds=4).histories[0]
    assert history.upload[-1] == history.download[-1] == 12 * 4 * 2 * MODEL_SCALARS
