"""Counter-based draws: distribution, and what they may not depend on."""

from __future__ import annotations

import math

import pytest
import torch

from fgl_bench.engine.random_numbers import normal, uniform

KEYS = torch.tensor([3, 1234567890123, -17])


def test_a_draw_depends_on_its_key_node_and_unit_only():
    whole = normal(KEYS, 50, 7, torch.float64)
    assert torch.equal(whole[1:2, :20], normal(KEYS[1:2], 20, 7, torch.float64))
    assert torch.equal(uniform(KEYS, 50, 7)[2, :5], uniform(KEYS[[2]], 5, 7)[0])


def test_uniform_draws_fill_the_unit_interval():
    draws = uniform(KEYS, 1000, 30)
    assert 0 <= draws.min() and draws.max() < 1
    shares = torch.histc(draws.flatten(), 20, 0, 1) / draws.numel()
    assert (shares - 0.05).abs().max() < 0.003
    assert draws.unique().numel() == draws.numel()


def test_normal_draws_have_normal_moments_and_are_independent():
    draws = normal(KEYS, 2000, 10, torch.float64)
    assert draws.mean().item() == pytest.approx(0, abs=0.02) and draws.std().item() == pytest.approx(1, abs=0.02)
    assert (draws.abs() < 1).double().mean().item() == pytest.approx(math.erf(2**-0.5), abs=0.01)
    correlation = torch.corrcoef(draws.transpose(1, 2).reshape(30, 2000))
    assert (correlation - torch.eye(30)).abs().max() < 0.12
    assert torch.isfinite(draws).all() and normal(KEYS, 2, 2, torch.float32).dtype == torch.float32
