"""The fused optimiser is torch's Adam, one for each replica."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.adam import Adam


class Plain:
    """One ``torch.optim.Adam`` a row."""

    def __init__(self, theta, lr, weight_decay):
        self.rows = [torch.nn.Parameter(row.clone()) for row in theta]
        self.lr, self.weight_decay = lr, weight_decay
        self.optimisers = [self.fresh(row) for row in self.rows]

    def fresh(self, row):
        return torch.optim.Adam([row], lr=self.lr, weight_decay=self.weight_decay)

    def step(self, i, gradient):
        self.rows[i].grad = gradient.clone()
        self.optimisers[i].step()

    def reset(self, i):
        self.optimisers[i] = self.fresh(self.rows[i])


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_rows_step_at_their_own_times(generator, dtype, tolerance, weight_decay):
    theta = torch.randn(4, 7, generator=generator, dtype=dtype)
    plain, adam = Plain(theta, 0.1, weight_decay), Adam(4, 7, 0.1, weight_decay, dtype, torch.device("cpu"))
    # Row 0 steps six times, row 1 three times, row 2 twice (once after a reset), row 3 never.
    for rows in ([0, 1], [0], [1, 0], [0, 2], [0, 1], [2, 0]):
        if rows == [2, 0]:
            adam.reset([2])
            plain.reset(2)
        gradient = torch.randn(len(rows), 7, generator=generator, dtype=dtype)
        adam.step([theta[i] for i in rows], list(gradient), rows)
        for i, row in zip(rows, gradient, strict=True):
            plain.step(i, row)
        for row, expected in zip(theta, plain.rows, strict=True):
            torch.testing.assert_close(row, expected.detach(), rtol=tolerance, atol=tolerance)
    assert adam.steps.tolist() == [6, 3, 1, 0]


def test_the_order_of_rows_is_free(generator):
    theta = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    gradient = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    results = []
    for order in ([0, 1, 2], [2, 0, 1]):
        copy, adam = theta.clone(), Adam(3, 5, 0.1, 0.0, torch.float64, torch.device("cpu"))
        for _ in range(3):
            adam.step([copy[i] for i in order], [gradient[i] for i in order], order)
        results.append(copy)
    assert torch.equal(*results)


def test_the_first_step_moves_every_scalar_by_the_learning_rate(generator):
    theta, gradient = torch.zeros(1, 6, dtype=torch.float64), torch.randn(1, 6, generator=generator, dtype=torch.float64)
    Adam(1, 6, 0.3, 0.0, torch.float64, torch.device("cpu")).step([theta[0]], [gradient[0]], [0])
    torch.testing.assert_close(theta, -0.3 * gradient.sign(), rtol=1e-6, atol=0)


def test_nothing_to_do():
    Adam(2, 3, 0.1, 0.0, torch.float64, torch.device("cpu")).step([], [], [])
