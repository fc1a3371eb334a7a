"""Scores that are made for a draw alone are those of the convolution."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.algorithms.cross_client import _bipartite
from fgl_bench.algorithms.cross_client._features import distinct
from tests.algorithms.crossing import fedaas, gat, run
from tests.reference.cross_client import small_served


def scores_both_ways(method, **changes):
    """Of the levels of a method's plan: the scores for a draw and the convolution's own, with random rows of others."""
    run([small_served(seed) for seed in (0, 1)], method, model=gat(**changes), rounds=1)
    halo, layers, generator = method.halo, method.layers, torch.Generator().manual_seed(0)
    plan, layout = halo.plan(halo.slots, layers.depth), method.setting.layout
    theta = torch.randn(halo.size, layout.size, generator=generator, dtype=halo.dtype)
    views, level, store = layout.views(theta), plan.levels[-1], method.store[-1]
    stamp = torch.randint(-1, 1, method.stamp[-1].shape, generator=generator)
    store.copy_(torch.randn(store.shape, generator=generator, dtype=store.dtype)).mul_((stamp >= 0)[:, None])
    hidden = torch.randn(halo.size, level.own, store.shape[1], generator=generator, dtype=halo.dtype)
    last = layers.depth - 1
    return layers.scores(last, views, hidden, store, stamp, level), layers.sent(last, views, hidden, store, level).scores


def test_equal_those_of_the_whole_convolution(monkeypatch):
    one, many = 1 << 18, 8  # pieces
    cases = [(one, {}), (many, {"hidden": [4, 6], "heads": 2}), (many, {"version": "v1"}), (one, {"layers": 3, "hidden": [5, 4, 3]})]
    for width, changes in cases:
        monkeypatch.setitem(_bipartite.BLOCK, "cpu", width)
        found, expected = scores_both_ways(fedaas(), **changes)
        assert found.shape == expected.shape and found.shape[1]
        torch.testing.assert_close(found, expected)


@given(st.lists(st.integers(0, 20), max_size=30))
def test_distinct_numbers_are_numpys(numbers):
    numbers = np.array(numbers, dtype=np.int64)
    found, inverse = distinct(numbers, 21)
    expected, where = np.unique(numbers, return_inverse=True)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(inverse, where)
