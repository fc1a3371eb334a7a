"""The fused optimisers are torch's Adam and AdamW, one for each replica."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.stacked_optimizers import StackedAdam, StackedAdamW


class Plain:
    """One of torch's a row."""

    def __init__(self, theta, lr, weight_decay, kind=torch.optim.Adam, **keys):
        self.kind, self.keys = kind, keys
        self.rows = [torch.nn.Parameter(row.clone()) for row in theta]
        self.lr, self.weight_decay = lr, weight_decay
        self.optimisers = [self.fresh(row) for row in self.rows]

    def fresh(self, row):
        return self.kind([row], lr=self.lr, weight_decay=self.weight_decay, **self.keys)

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
@pytest.mark.parametrize(("ours", "theirs"), [(StackedAdam, torch.optim.Adam), (StackedAdamW, torch.optim.AdamW)])
@pytest.mark.parametrize("keys", [{}, {"beta1": 0.5, "beta2": 0.9, "eps": 1e-3}])
def test_replicas_step_at_their_own_times(generator, dtype, tolerance, weight_decay, ours, theirs, keys):
    theta = torch.randn(4, 7, generator=generator, dtype=dtype)
    adam = ours(4, 7, 0.1, weight_decay, dtype, torch.device("cpu"), **keys)
    plain = Plain(theta, 0.1, weight_decay, theirs, **({"betas": (0.5, 0.9), "eps": 1e-3} if keys else {}))

    def step(rows, able=None):
        part, gradient = theta[rows], torch.randn(len(rows), 7, generator=generator, dtype=dtype)
        adam.step(part, gradient, rows, able)
        theta[rows] = part
        for position in range(len(rows)) if able is None else able:
            plain.step(rows[position], gradient[position])
        for row, expected in zip(theta, plain.rows, strict=True):
            torch.testing.assert_close(row, expected.detach(), rtol=tolerance, atol=tolerance)

    everyone = [0, 1, 2, 3]
    step(everyone)
    step(everyone)
    step([1, 0])
    step(everyone, able=[2, 0])
    step([3, 2, 1], able=[])
    adam.reset([2])
    plain.reset(2)
    step(everyone)
    step([2])
    assert adam.steps.tolist() == [5, 4, 2, 3]


def test_those_who_cannot_step_keep_every_bit_of_their_models(generator):
    theta = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    before, adam = theta.clone(), StackedAdam(3, 5, 0.1, 0.1, torch.float64, torch.device("cpu"))
    for _ in range(3):
        adam.step(theta, torch.ones_like(theta), [0, 1, 2], able=[0, 2])
    assert torch.equal(theta[1], before[1]) and not torch.equal(theta[0], before[0])
    assert not adam.first[1].any()


def test_stepping_together_or_one_by_one_is_the_same(generator):
    start = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    gradients = torch.randn(4, 3, 5, generator=generator, dtype=torch.float64)
    together, alone = start.clone(), start.clone()
    one, other = (StackedAdam(3, 5, 0.1, 0.01, torch.float64, torch.device("cpu")) for _ in range(2))
    for gradient in gradients:
        one.step(together, gradient.clone(), [0, 1, 2])
        for i in (2, 0, 1):
            other.step(alone[i : i + 1], gradient[i : i + 1].clone(), [i])
    torch.testing.assert_close(together, alone, rtol=1e-14, atol=1e-14)


def test_the_first_step_moves_every_scalar_by_the_learning_rate(generator):
    theta, gradient = torch.zeros(1, 6, dtype=torch.float64), torch.randn(1, 6, generator=generator, dtype=torch.float64)
    StackedAdam(1, 6, 0.3, 0.0, torch.float64, torch.device("cpu")).step(theta, gradient, [0])
    torch.testing.assert_close(theta, -0.3 * gradient.sign(), rtol=1e-6, atol=0)
