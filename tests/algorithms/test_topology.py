"""Statistics of propagated predictions, worked out by hand and under changes that must not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.algorithms.topology import (
    hybrid_moments,
    labels_propagated,
    propagate,
    smoothing_confidence,
    soft_label_features,
    with_truth,
)
from fgl_bench.engine.batch import Batch, gcn_operator, plain_operator
from tests.engine.graphs import from_edges, make_client, permuted

PATH = from_edges([(0, 1), (1, 2)], [0, 1, 1, 0], train=[0])  # 0 - 1 - 2, and 3 alone


def batch_of(*clients):
    return Batch(clients, torch.float64, "cpu")


def soft_for(batch, classes=3, seed=0):
    values = torch.rand(batch.size, batch.nodes, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.softmax(-1)


def tensor(rows):
    return torch.tensor([rows], dtype=torch.float64)


def dense_operator(client, loops):
    n = client.num_nodes
    a = np.zeros((n, n))
    a[client.edges[0], client.edges[1]] = 1
    a += np.eye(n) * loops
    scale = np.where(a.sum(1) > 0, 1 / np.sqrt(np.maximum(a.sum(1), 1)), 0)
    return torch.from_numpy(scale[:, None] * a * scale)


def test_one_step_of_propagation_by_hand():
    y = tensor([[1, 0], [0, 1], [1, 0], [0.5, 0.5]])
    spread = propagate(y, batch_of(PATH), plain_operator, 1, keep=0.25)
    r = 0.75 / math.sqrt(2)  # degrees 1, 2, 1: every edge weighs 1/sqrt 2
    expected = [[0.25, r], [2 * r, 0.25], [0.25, r], [0.125, 0.125]]
    torch.testing.assert_close(spread, tensor(expected))


@pytest.mark.parametrize(("operator", "loops"), [(plain_operator, 0), (gcn_operator, 1)])
@pytest.mark.parametrize("keep", [0.0, 0.3, 1.0])
def test_propagation_is_its_recursion_on_every_client(operator, loops, keep):
    clients = [make_client(size, seed=i) for i, size in enumerate((3, 8, 1))]
    batch = batch_of(*clients)
    soft = soft_for(batch)
    got = propagate(soft, batch, operator, 4, keep)
    for i, client in enumerate(clients):
        n, matrix = client.num_nodes, dense_operator(client, loops)
        expected = start = soft[i, :n]
        for _ in range(4):
            expected = keep * start + (1 - keep) * matrix @ expected
        torch.testing.assert_close(got[i, :n], expected, rtol=1e-12, atol=1e-12)


def test_the_official_code_injects_the_truth_into_training_rows():
    client = make_client(9, seed=4)
    batch = batch_of(client)
    soft, matrix = soft_for(batch)[0], dense_operator(client, 1)
    truth = torch.nn.functional.one_hot(torch.from_numpy(client.labels), 3).double()
    train = torch.from_numpy(client.train)[:, None]
    expected = start = torch.where(train, truth, soft)
    for _ in range(5):
        expected = 0.4 * matrix @ expected + 0.6 * start + truth * train
    torch.testing.assert_close(labels_propagated(soft[None], batch, 5, 0.4)[0], expected, rtol=1e-12, atol=1e-12)
    reset = with_truth(expected[None], batch)[0]
    assert torch.equal(reset[client.train], truth[client.train]) and torch.equal(reset[~client.train], expected[~client.train])


def test_confidence_by_hand():
    e = math.exp(-1)
    # A certain row has entropy 0, hence 1/e per class; degrees 1, 2, 1, 0.
    certain = tensor([[1, 0], [0, 1], [1, 0], [1, 0]])
    assert smoothing_confidence(certain, batch_of(PATH)).item() == pytest.approx(4 * 2 * e, abs=1e-5)
    even = tensor([[0.5, 0.5]] * 4)
    assert smoothing_confidence(even, batch_of(PATH)).item() == pytest.approx(4 * 2 * (e + 0.5 * math.log(0.5)))
    # y ln y is smallest at y = 1/e, where a term vanishes.
    assert smoothing_confidence(tensor([[e, e]] * 4), batch_of(PATH)).item() == pytest.approx(0, abs=1e-12)


def test_moments_by_hand():
    # Class 0 of the real nodes is 0.2, 0.4, 0.9: mean 0.5, centred -0.3, -0.1, 0.4.
    client = from_edges([], [0, 0, 0], features=np.zeros((3, 5)))
    batch = batch_of(client, make_client(5))
    soft = torch.full((2, 5, 1), 0.77, dtype=torch.float64)
    soft[0, :3, 0] = torch.tensor([0.2, 0.4, 0.9])
    moments = hybrid_moments(soft, batch, 3)
    raw = [0.5, (0.04 + 0.16 + 0.81) / 3, (0.008 + 0.064 + 0.729) / 3]
    central = [0, (0.09 + 0.01 + 0.16) / 3, (-0.027 - 0.001 + 0.064) / 3]
    torch.testing.assert_close(moments["raw"][0], tensor(raw)[0])
    torch.testing.assert_close(moments["central"][0], tensor(central)[0])


def test_soft_label_features_by_hand():
    # Edges 0-1 and 1-2 with degrees 1, 2, 1; both directions of d_u d_v y_u y_v^T.
    y = np.array([[1.0, 0.0], [0.3, 0.7], [0.0, 1.0], [0.5, 0.5]])
    expected = np.zeros((2, 2))
    for u, v in ((0, 1), (1, 0), (1, 2), (2, 1)):
        expected += 2 * np.outer(y[u], y[v])
    features = soft_label_features(tensor(y.tolist()), batch_of(PATH))[0].numpy()
    np.testing.assert_allclose(features, expected / np.linalg.norm(expected), rtol=1e-9)


def statistics(client, soft):
    batch = batch_of(client)
    spread = labels_propagated(soft[None], batch, 3, 0.5)
    moments = hybrid_moments(spread, batch, 4)
    parts = [soft_label_features(soft[None], batch), smoothing_confidence(spread, batch), moments["raw"], moments["central"]]
    return torch.cat([part.flatten() for part in parts])


@given(st.permutations(range(10)))
def test_renumbering_nodes_changes_no_statistic(order):
    client, order = make_client(10, seed=1), np.array(order)
    soft = soft_for(batch_of(client))[0]
    torch.testing.assert_close(statistics(permuted(client, order), soft[order]), statistics(client, soft), rtol=1e-10, atol=1e-12)


def test_padding_takes_no_part():
    small, large = make_client(5, seed=2), make_client(20, seed=3)
    soft = soft_for(batch_of(small))[0]
    padded = torch.full((2, 20, 3), 0.9, dtype=torch.float64)
    padded[0, :5] = soft
    alone, beside = batch_of(small), batch_of(small, large)
    torch.testing.assert_close(soft_label_features(padded, beside)[0], soft_label_features(soft[None], alone)[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(smoothing_confidence(padded, beside)[0], smoothing_confidence(soft[None], alone)[0])
    for name, moments in hybrid_moments(soft[None], alone, 3).items():
        torch.testing.assert_close(hybrid_moments(padded, beside, 3)[name][0], moments[0])


def test_large_degrees_do_not_overflow_in_single_precision():
    """A star and a clique whose entries grow like products of degrees (1e8 and more)."""
    star = from_edges([(0, i) for i in range(1, 400)], [0] * 400, features=np.zeros((400, 1)))
    double, single = (Batch([star], dtype, "cpu") for dtype in (torch.float64, torch.float32))
    soft = torch.rand(1, 400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(soft_label_features(soft.float(), single), soft_label_features(soft, double), rtol=1e-5, atol=1e-6)
