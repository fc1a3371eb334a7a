"""Communication graphs and their weights: degrees, symmetry, stochasticity, consensus."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.engine.mixing import COLUMNS, metropolis, product, pushed, sized, uniform
from fgl_bench.engine.topologies import RANDOM, TOPOLOGIES, Links

UNDIRECTED = ("isolated", "ring", "complete", "random_matching", "hypercube", "random_regular", "erdos_renyi")
REGULAR = ("ring", "directed_ring", "complete", "random_regular", "static_exponential", "one_peer_exponential", "k_peer_exponential")


def drawn(name, clients=10, time=0, seed=0, degree=2, chance=0.4):
    return TOPOLOGIES[name](Links(clients, time, np.random.default_rng([seed, time]), degree, chance))


def stacked(heard):
    return torch.from_numpy(heard)[None]


@given(name=st.sampled_from(sorted(TOPOLOGIES)), clients=st.integers(2, 13), time=st.integers(0, 6), seed=st.integers(0, 99))
def test_weights_live_on_the_graph_and_are_stochastic(name, clients, time, seed):
    if name == "random_regular" and clients < 3:
        return
    heard = drawn(name, clients, time, seed)
    assert heard.dtype == bool and heard.shape == (clients, clients) and not heard.diagonal().any()
    assert (heard == heard.T).all() or name not in UNDIRECTED
    sizes = torch.from_numpy(np.random.default_rng(seed).integers(1, 9, (1, clients)))
    ones = np.ones(clients)
    for matrix in (uniform(stacked(heard)), metropolis(stacked(heard)), sized(stacked(heard), sizes)):
        matrix = matrix[0].numpy()
        assert (matrix >= -1e-15).all() and (matrix[~(heard | np.eye(clients, dtype=bool))] == 0).all() and (matrix[heard] > 0).all()
        np.testing.assert_allclose(matrix.sum(1), ones, rtol=1e-12)
    np.testing.assert_allclose(pushed(stacked(heard))[0].numpy().sum(0), ones, rtol=1e-12)
    if name in UNDIRECTED:
        doubly = metropolis(stacked(heard))[0].numpy()
        np.testing.assert_allclose(doubly, doubly.T)
        np.testing.assert_allclose(doubly.sum(0), ones, rtol=1e-12)


@pytest.mark.parametrize("name", REGULAR)
@pytest.mark.parametrize("clients", [3, 8, 10, 20])
def test_on_regular_graphs_all_weights_agree_and_are_doubly_stochastic(name, clients):
    heard = stacked(drawn(name, clients))
    for matrix in (metropolis(heard), pushed(heard)):
        torch.testing.assert_close(matrix, uniform(heard))
        torch.testing.assert_close(matrix.sum(1), torch.ones(1, clients, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "clients", "count"),
    [
        ("isolated", 10, 0), ("ring", 10, 20), ("ring", 2, 2), ("ring", 1, 0), ("directed_ring", 10, 10), ("complete", 10, 90),
        ("random_k_in", 10, 20), ("random_k_out", 10, 20), ("random_matching", 10, 10), ("random_matching", 7, 6),
        ("random_regular", 10, 20), ("static_exponential", 10, 40), ("one_peer_exponential", 10, 10), ("k_peer_exponential", 9, 18),
        ("hypercube", 8, 8),
    ],
)  # fmt: skip
def test_messages_a_round(name, clients, count):
    assert [drawn(name, clients, time).sum() for time in range(5)] == [count] * 5


def test_pulling_and_pushing():
    assert (drawn("random_k_in", degree=3).sum(1) == 3).all() and (drawn("random_k_out", degree=3).sum(0) == 3).all()
    assert (drawn("random_k_in", clients=4, degree=9).sum(1) == 3).all()


def test_a_matching_is_a_symmetric_projection():
    for clients in (7, 10):
        matrix = uniform(stacked(drawn("random_matching", clients)))
        torch.testing.assert_close(matrix @ matrix, matrix)
        assert torch.equal(matrix, matrix.mT)
        assert drawn("random_matching", clients).sum(1).max() == 1


def after(name, clients, steps, degree=1):
    matrix = torch.eye(clients, dtype=torch.float64)[None]
    for time in range(steps):
        matrix = uniform(stacked(drawn(name, clients, time, degree=degree))) @ matrix
    return (matrix - 1 / clients).abs().max().item()


def test_one_period_reaches_the_mean_exactly_where_theory_says():
    assert after("complete", 10, 1) < 1e-15
    for clients in (8, 16):
        assert after("one_peer_exponential", clients, int(np.log2(clients))) < 1e-15
        assert after("hypercube", clients, int(np.log2(clients))) < 1e-15
    assert after("k_peer_exponential", 9, 2, degree=2) < 1e-15
    assert after("one_peer_exponential", 10, 4) == pytest.approx(0.0375, abs=1e-6)
    assert after("one_peer_exponential", 20, 5) == pytest.approx(0.019, abs=1e-3)


def test_long_rows_are_mixed_in_columns_as_at_once():
    draw = torch.Generator().manual_seed(0)
    matrix, models = torch.rand(2, 3, 3, generator=draw), torch.randn(2, 3, 2 * COLUMNS + 5, generator=draw)
    expected = (matrix.double() @ models.double()).float()
    torch.testing.assert_close(product(matrix, models), expected, rtol=1e-6, atol=1e-7)


def test_mixing_in_single_precision_keeps_constants():
    models = torch.full((2, 20, 7), 0.1)
    matrix = sized(torch.ones(2, 20, 20, dtype=torch.bool) & ~torch.eye(20, dtype=torch.bool), torch.arange(1, 41).view(2, 20))
    for _ in range(50):
        models = product(matrix, models)
    assert models.dtype == torch.float32 and torch.equal(models, torch.full((2, 20, 7), 0.1))


def test_only_random_graphs_depend_on_the_draw():
    for name in TOPOLOGIES:
        same = all((drawn(name, 11, 3, 1) == drawn(name, 11, 3, seed)).all() for seed in range(2, 6))
        assert same == (name not in RANDOM)


def test_an_impossible_regular_graph_is_refused():
    for clients, degree in ((5, 3), (4, 4)):
        with pytest.raises(ValueError, match=f"no regular graph of {clients} clients"):
            drawn("random_regular", clients, degree=degree)
