"""Drawing neighbours without replacement."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.algorithms.cross_client._sampling import gumbel, largest


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-5, 5)), max_size=40), st.integers(0, 4))
def test_the_largest_of_every_group_by_sorting(items, limit):
    group = torch.tensor([g for g, _ in items], dtype=torch.int64)
    keys = torch.tensor([k for _, k in items], dtype=torch.float64)
    expected = [
        sum((g2 == g) and (k2 > k or (k2 == k and j < i)) for j, (g2, k2) in enumerate(items)) < limit for i, (g, k) in enumerate(items)
    ]
    assert largest(keys, group, limit).tolist() == expected


def test_a_limit_of_its_own_for_every_group():
    group, keys = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([1.0, 3.0, 2.0, 1.0, 3.0, 2.0])
    assert largest(keys, group, torch.tensor([1, 1, 1, 2, 2, 2])).tolist() == [False, True, False, False, True, True]


def test_draws_are_gumbel_and_a_function_of_key_and_number():
    number = torch.arange(40_000)
    draws = gumbel(torch.full_like(number, 7), number, torch.float64)
    assert abs(draws.mean() - 0.5772) < 0.03 and abs(draws.var() - 1.6449) < 0.06
    assert torch.equal(gumbel(torch.tensor([7]), torch.tensor([123]), torch.float64), draws[123:124])
    assert not torch.equal(gumbel(torch.tensor([8]), torch.tensor([123]), torch.float64), draws[123:124])


def test_the_first_draw_follows_the_probabilities():
    scores = torch.tensor([0.0, 1.0, 2.0, -1.0]).double()
    trials = 20_000
    noise = gumbel(torch.arange(trials).repeat_interleave(4), torch.arange(4).repeat(trials), torch.float64)
    drawn = largest(scores.repeat(trials) + noise, torch.arange(trials).repeat_interleave(4), 1).view(trials, 4).double().mean(0)
    torch.testing.assert_close(drawn, scores.softmax(0), rtol=0, atol=0.012)
    two = largest(scores.repeat(trials) + noise, torch.arange(trials).repeat_interleave(4), 2).view(trials, 4)
    assert (two.sum(1) == 2).all()
