"""Heavy-ball descent agrees with torch.optim.SGD, row by row."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.sgd import HeavyBall


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_row_is_torch_s_sgd_whoever_steps(momentum):
    draw = torch.Generator().manual_seed(0)
    theta = torch.randn(4, 7, generator=draw, dtype=torch.float64)
    ours = HeavyBall(4, 7, 0.1, 0.3, torch.float64, torch.device("cpu"), momentum)
    rows = [theta[i].clone().requires_grad_() for i in range(4)]
    theirs = [torch.optim.SGD([row], lr=0.1, momentum=momentum, weight_decay=0.3) for row in rows]
    for who, able in [((0, 1, 2, 3), None), ((3, 1), None), ((0, 2, 3), [0, 2]), ((0, 1, 2, 3), [1]), ((2,), [])]:
        gradient = torch.randn(len(who), 7, generator=draw, dtype=torch.float64)
        part = theta[list(who)]
        ours.step(part, gradient, who, able)
        theta[list(who)] = part
        for position in range(len(who)) if able is None else able:
            rows[who[position]].grad = gradient[position].clone()
            theirs[who[position]].step()
        torch.testing.assert_close(theta, torch.stack([row.detach() for row in rows]))


def test_reset_forgets_these_rows_only():
    ours = HeavyBall(3, 2, 0.1, 0.0, torch.float64, torch.device("cpu"), 0.9)
    ours.step(torch.zeros(3, 2, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64), (0, 1, 2))
    ours.reset((0, 2))
    assert ours.velocity.tolist() == [[0, 0], [1, 1], [0, 0]] and ours.moments[0] is ours.velocity
