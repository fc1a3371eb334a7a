"""Minimum cuts against all cuts, warping distances against the recursion."""

from __future__ import annotations

from functools import lru_cache

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.algorithms.gcfl import minimum_cut
from fgl_bench.algorithms.gcfl_plus import warping_distances


def value(weights, side):
    return weights[np.ix_(side, ~side)].sum()


def all_cuts(count):
    for number in range(1, 2 ** (count - 1)):
        yield np.array([False, *((number >> i) & 1 == 1 for i in range(count - 1))])


@given(st.integers(2, 7), st.integers(0, 10_000), st.booleans())
def test_no_cut_is_cheaper(count, seed, whole):
    draw = np.random.default_rng(seed)
    weights = draw.integers(0, 4, (count, count)).astype(float) if whole else draw.random((count, count))
    weights = weights + weights.T
    side = minimum_cut(weights)
    assert side.shape == (count,) and not side[0] and side.any()
    assert value(weights, side) == pytest.approx(min(value(weights, other) for other in all_cuts(count)))


def test_as_networkx_cuts():
    draw = np.random.default_rng(0)
    for count in (5, 12, 20):
        weights = draw.random((count, count)) ** 4
        weights = weights + weights.T
        graph = networkx.from_numpy_array(weights - np.diag(weights.diagonal()))
        assert value(weights, minimum_cut(weights)) == pytest.approx(networkx.stoer_wagner(graph)[0])


def naive(a, b):
    @lru_cache(None)
    def total(i, j):
        if min(i, j) < 0:
            return 0.0 if i == j == -1 else np.inf
        return (a[i] - b[j]) ** 2 + min(total(i - 1, j - 1), total(i - 1, j), total(i, j - 1))

    return total(len(a) - 1, len(b) - 1) ** 0.5


def test_distances_are_those_of_the_recursion():
    series = np.random.default_rng(1).normal(size=(6, 5))
    distances = warping_distances(series)
    assert np.allclose(distances, distances.T) and np.allclose(distances.diagonal(), 0)
    for i, j in np.ndindex(6, 6):
        assert distances[i, j] == pytest.approx(naive(series[i], series[j]), abs=1e-12)
