"""pFedMe: clients train personal models and upload others, which alone are averaged."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.pfedme import PFedMe
from tests.algorithms.stateful import assert_follows
from tests.reference import stateful
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {"inner_steps": 2, "penalty": 3.0, "outer_lr": 0.2, "beta": 0.7}


def method(**changes):
    return PFedMe(**{**KEYS, **changes})


def run(algorithm, scenario=None, **settings):
    federations = [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, scenario or synchronous(), **{"rounds": 4, "local_epochs": 4, **settings})


@pytest.mark.parametrize(("participation", "epochs"), [(1.0, 2), (0.5, 5)])
def test_it_is_the_plain_loop(participation, epochs):
    """Also where the last outer round is shorter than the others."""
    assert_follows(method, lambda: stateful.PFedMe(**KEYS), participation=participation, local_epochs=epochs)


def test_by_hand():
    made = method()
    made.local = torch.tensor([[0.0], [1.0], [2.0]])
    uploaded = made.upload((0, 2), torch.zeros(2, 1), torch.tensor([[1.0], [4.0]]))  # w_i + 0.2 * 3 (theta_i - w_i)
    torch.testing.assert_close(uploaded, torch.tensor([[0.6], [3.2]]))
    refined = made.refine(torch.tensor([[[1.0]]]), torch.tensor([[[2.0]]]), uploaded, torch.ones(1, 1, dtype=torch.bool))
    torch.testing.assert_close(refined, torch.tensor([[[1.7]]]))


def test_a_client_that_is_late_is_averaged_with_what_it_uploads_next():
    """What a late client would have uploaded is not heard: the round is that of the others."""
    scenario = synchronous(deadline=1.5, slow_fraction=0.4)
    made, seen = method(), []
    refine = made.refine
    made.refine = lambda *arguments: seen.append([x.clone() for x in arguments]) or refine(*arguments)
    result = run(made, scenario)
    late = ~seen[0][3][0]
    assert late.any() and not late.all()
    assert (seen[0][2][0][late] == 0).all(), "nothing has been heard of late clients"
    sizes = result.sim.setting.weights[0] * ~late
    expected = (sizes / sizes.sum()) @ seen[0][2][0]
    torch.testing.assert_close(seen[0][1][0, 0], expected)
