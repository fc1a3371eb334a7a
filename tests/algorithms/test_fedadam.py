"""FedAdam, FedYogi, FedAdagrad: the server's adaptive step."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.fedadam import FedAdam
from tests.algorithms.stateful import assert_follows
from tests.reference import server_steps

KEYS = {"server_lr": 0.05, "beta1": 0.8, "beta2": 0.9, "tau": 1e-2}


@pytest.mark.parametrize(("rule", "participation"), [("adam", 0.5), ("yogi", 1.0), ("adagrad", 0.5)])
def test_it_is_the_plain_loop(rule, participation):
    both = (lambda kind=kind: kind(**KEYS, rule=rule) for kind in (FedAdam, server_steps.FedAdam))
    assert_follows(*both, participation=participation, local_epochs=2)


@pytest.mark.parametrize(("rule", "second"), [("adam", 0.5 * 4 + 0.5 * 9), ("yogi", 4 + 0.5 * 9), ("adagrad", 4 + 9)])
def test_by_hand(rule, second):
    method = FedAdam(server_lr=2.0, beta1=0.75, beta2=0.5, tau=1.0, rule=rule)
    method.first, method.second = torch.tensor([[[4.0]]]), torch.tensor([[[4.0]]])
    previous, received = torch.full((1, 2, 1), 10.0), torch.full((1, 2, 1), 13.0)
    refined = method.refine(previous, received, received, torch.ones(1, 2, dtype=torch.bool))
    first = 0.75 * 4 + 0.25 * 3
    torch.testing.assert_close(refined, torch.full((1, 2, 1), 10 + 2 * first / (second**0.5 + 1)))


def test_a_round_without_uploads_leaves_the_moments_alone():
    method = FedAdam(**KEYS, rule="adam")
    method.first, method.second = torch.ones(1, 1, 3), torch.ones(1, 1, 3)
    method.refine(torch.zeros(1, 2, 3), torch.ones(1, 2, 3), torch.ones(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool))
    assert method.first.eq(1).all() and method.second.eq(1).all()
