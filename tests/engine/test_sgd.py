"""Descent agrees with torch.optim.SGD, row by row."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.stacked_optimizers import StackedSGD


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_every_row_is_torch_s_sgd_whoever_steps(momentum, nesterov):
    draw = torch.Generator().manual_seed(0)
    theta = torch.randn(4, 7, generator=draw, dtype=torch.float64)
    ours = StackedSGD(4, 7, 0.1, 0.3, torch.float64, torch.device("cpu"), momentum, nesterov)
    rows = [theta[i].clone().requires_grad_() for i in range(4)]
    theirs = [torch.optim.SGD([row], lr=0.1, momentum=momentum, weight_decay=0.3, nesterov=nesterov) for row in rows]
    for who, able in [((0, 1, 2, 3), None), ((3, 1), None), ((0, 2, 3), [0, 2]), ((3, 2, 1, 0), None), ((0, 1, 2, 3), [1]), ((2,), [])]:
        gradient = torch.randn(len(who), 7, generator=draw, dtype=torch.float64)
        part, before = theta[list(who)], gradient.clone()
        ours.step(part, gradient, who, able)
        assert torch.equal(gradient, before), "methods keep gradients"
        theta[list(who)] = part
        for position in range(len(who)) if able is None else able:
            rows[who[position]].grad = gradient[position].clone()
            theirs[who[position]].step()
        torch.testing.assert_close(theta, torch.stack([row.detach() for row in rows]))


def test_reset_forgets_these_rows_only():
    ours = StackedSGD(3, 2, 0.1, 0.0, torch.float64, torch.device("cpu"), 0.9)
    ours.step(torch.zeros(3, 2, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64), (0, 1, 2))
    ours.reset((0, 2))
    assert ours.velocity.tolist() == [[0, 0], [1, 1], [0, 0]] and ours.moments[0] is ours.velocity
    ours.reset((0, 1, 2))
    assert not ours.velocity.any()


def test_without_momentum_there_is_nothing_to_keep():
    ours = StackedSGD(3, 2, 0.1, 0.0, torch.float64, torch.device("cpu"))
    assert ours.moments == () and ours.velocity.numel() == 0
    ours.reset((0, 2))
