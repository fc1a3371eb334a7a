"""Divergences and moments against torch.distributions, hand-computed values and sampling."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Independent, Normal, kl_divergence

from fgl_bench.algorithms.fedssa import Gaussian, class_gaussians, divergence, divergence_from_standard, matched


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_divergence_by_hand_and_against_torch():
    one, other = (Gaussian(*torch.tensor(pair, dtype=torch.float64)[:, None]) for pair in ([0.0, 1.0], [1.0, 4.0]))
    # (ln 4 + 1/4 + 1/4 - 1) / 2 and (-ln 4 + 4 + 1 - 1) / 2
    assert divergence(one, other).item() == pytest.approx(0.4431471805599453)
    assert divergence(other, one).item() == pytest.approx(1.3068528194400546)
    pair = [Gaussian(draw(5, 3, seed=s), draw(5, 3, seed=s + 9).exp()) for s in (0, 1)]
    expected = kl_divergence(*(Independent(Normal(g.mean, g.variance.sqrt()), 1) for g in pair))
    torch.testing.assert_close(divergence(*pair), expected)
    standard = Gaussian(torch.zeros(5, 3, dtype=torch.float64), torch.ones(5, 3, dtype=torch.float64))
    torch.testing.assert_close(divergence_from_standard(pair[0].mean, pair[0].variance.log()), divergence(pair[0], standard))


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.1, 5)), min_size=2, max_size=2))
def test_divergence_is_positive_and_zero_for_equals_only(pair):
    one, other = (Gaussian(torch.tensor([m], dtype=torch.float64), torch.tensor([v], dtype=torch.float64)) for m, v in pair)
    assert divergence(one, one).item() == pytest.approx(0, abs=1e-12)
    assert divergence(one, other).item() >= -1e-12


def test_a_mixtures_moments_are_those_of_its_samples():
    each = Gaussian(draw(3, 2) * 2, draw(3, 2, seed=1).exp())
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], dtype=torch.float64)
    one = matched(weights, each)
    torch.testing.assert_close(one.mean[1], each.mean[1])
    torch.testing.assert_close(one.variance[1], each.variance[1])
    generator = torch.Generator().manual_seed(2)
    which = torch.multinomial(weights[0], 400_000, replacement=True, generator=generator)
    samples = each.mean[which] + each.variance[which].sqrt() * torch.randn(400_000, 2, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(samples.mean(0), one.mean[0], rtol=0.01, atol=0.01)
    torch.testing.assert_close(samples.var(0), one.variance[0], rtol=0.01, atol=0.01)


def test_class_gaussians_are_those_of_pooled_posteriors():
    mean, log_variance = draw(2, 7, 3), draw(2, 7, 3, seed=1)
    shares = torch.zeros(2, 3, 7, dtype=torch.float64)
    shares[0, 0, [0, 2, 5]], shares[0, 1, 3], shares[1, 2, :] = 1 / 3, 1.0, 1 / 7
    found = class_gaussians(mean, log_variance, shares)
    rows = mean[0, [0, 2, 5]]
    torch.testing.assert_close(found.mean[0, 0], rows.mean(0))
    torch.testing.assert_close(found.variance[0, 0], log_variance[0, [0, 2, 5]].exp().mean(0) + rows.var(0, correction=0))
    torch.testing.assert_close(found.variance[0, 1], log_variance[0, 3].exp())  # one node: no spread of means
    assert not found.mean[0, 2].any() and not found.variance[0, 2].any()
    whole = matched(torch.full((1, 7), 1 / 7, dtype=torch.float64), Gaussian(mean[1], log_variance[1].exp()))
    torch.testing.assert_close(found.mean[1, 2], whole.mean[0])
    torch.testing.assert_close(found.variance[1, 2], whole.variance[0])
