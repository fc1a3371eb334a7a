"""Which neighbors are drawn: the largest keys of every group."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.cross_client import _sampling
from fgl_bench.algorithms.cross_client._sampling import largest


def plainly(keys: np.ndarray, group: np.ndarray, limit: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Group by group, the first of equal keys first."""
    chosen = np.zeros(keys.size, dtype=bool)
    for number in np.unique(group):
        items = np.flatnonzero((group == number) & among)
        chosen[items[np.argsort(-keys[items], kind="stable")[: limit[items[0]] if items.size else 0]]] = True
    return chosen


KEYS = {
    "draws": lambda rng, n: rng.gumbel(size=n),
    "equal": lambda rng, n: rng.integers(-1, 2, n),
    "zeros": lambda rng, n: rng.choice([0.0, -0.0, 1e-40, -1e-40], n),
    "infinite": lambda rng, n: rng.choice([np.inf, -np.inf, 1.0, -1.0], n),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KEYS)
def test_the_largest_of_a_group_are_those_of_the_plain_loop(kind, dtype):
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(1, 150))
        group, among = rng.integers(0, 12, n), rng.random(n) < 0.8
        limit = rng.integers(1, 6, 12)[group]
        keys = torch.from_numpy(KEYS[kind](rng, n).astype(np.float64)).to(dtype)
        found = largest(keys, torch.from_numpy(group), torch.from_numpy(limit), torch.from_numpy(among))
        assert np.array_equal(found.numpy(), plainly(keys.numpy(), group, limit, among))


def test_distinct_draws_take_one_sort(monkeypatch):
    """The second way, which finds the order by two keys, is for equal keys, other types and what is not a number."""
    monkeypatch.setattr(_sampling.np, "lexsort", None)
    rng = np.random.default_rng(1)
    keys, group = rng.normal(size=200).astype(np.float32), rng.integers(0, 9, 200)
    assert largest(torch.from_numpy(keys), torch.from_numpy(group), 3).sum() == 27
