"""Krylov bases, UniFilter's rotation, and polynomials on the fly, against dense eigenvectors and definitions."""

from __future__ import annotations

import math
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.algorithms._vgae import training_labels
from fgl_bench.engine.batch import Batch, plain_operator
from fgl_bench.engine.propagation import chebyshev_filter, chebyshev_terms, mean_terms
from fgl_bench.models.bernnet import bernstein_in_chebyshev
from fgl_bench.models.unifilter import UniBasis, agreeing_edges, krylov, unibasis
from tests.engine.graphs import from_edges, make_client


def operator(size=60, seed=0):
    return plain_operator(make_client(size, 0.08, seed=seed))


@pytest.mark.parametrize("orders", [10, 20, 40])
def test_krylov_vectors_are_orthonormal_and_span_the_krylov_space(orders):
    matrix, signal = operator(), np.random.default_rng(0).normal(size=(60, 4))
    basis = krylov(matrix, signal, orders)
    for column in range(4):
        vectors = basis[:, :, column]
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(orders + 1), atol=1e-13)
    for k in range(8):  # P^k x lies in the span of the first k + 1
        power = np.linalg.matrix_power(matrix.toarray(), k) @ signal
        for column in range(4):
            vectors = basis[: k + 1, :, column]
            np.testing.assert_allclose(vectors.T @ (vectors @ power[:, column]), power[:, column], atol=1e-12)


def test_an_exhausted_krylov_space_ends_in_zeros():
    # On one edge P swaps the ends: the space of (1, 0) has two dimensions, that of (1, 1) one, that of 0 none.
    basis = krylov(plain_operator(from_edges([(0, 1)], [0, 0])), np.array([[1.0, 1, 0], [0, 1, 0]]), 4)
    np.testing.assert_allclose(np.linalg.norm(basis, axis=1), [[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]])


@given(st.floats(0.01, 0.99), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_heterophily_vectors_have_equal_angles(cosine, seed):
    signal = np.random.default_rng(seed).normal(size=(60, 3))
    vectors = unibasis(operator(seed=seed), signal, 10, 0.0, cosine)
    vectors[0] /= np.linalg.norm(vectors[0], axis=0)
    for column in range(3):
        angles = vectors[:, :, column] @ vectors[:, :, column].T
        np.testing.assert_allclose(angles, np.where(np.eye(11), 1, cosine), atol=1e-9)


def test_the_released_codes_angles_are_not_equal():
    vectors = unibasis(operator(), np.random.default_rng(0).normal(size=(60, 1)), 6, 0.3, 0.45, previous=True)
    assert not np.allclose(vectors, unibasis(operator(), vectors[0], 6, 0.3, 0.45))


def test_perfect_homophily_turns_nothing_and_hopeless_columns_stay_finite():
    signal = np.random.default_rng(0).normal(size=(60, 2))
    signal[:, 1] = 0
    vectors = unibasis(operator(), signal, 5, 0.0, 1.0)
    unit = signal[:, 0] / np.linalg.norm(signal[:, 0])
    np.testing.assert_allclose(vectors[1:, :, 0], np.tile(unit, (5, 1)), atol=1e-6)  # the root of rounding
    assert not vectors[:, :, 1].any()
    assert np.isfinite(unibasis(operator(), signal, 10, 0.5, 1e-3)).all()


def test_the_angle_follows_the_homophily_of_edges_between_training_nodes():
    # Edges among training nodes 0-3: 0-1 and 1-2 join one class, 2-3 two; 3-4 leads to a test node.
    client = from_edges([(0, 1), (1, 2), (2, 3), (3, 4)], [0, 0, 0, 1, 0], train=[0, 1, 2, 3])
    assert agreeing_edges(client) == (4, 6)
    basis = UniBasis(4, 0.5, False)
    assert basis.cosine(client) == pytest.approx(math.cos(math.pi / 2 / 3))
    assert basis.cosine(from_edges([(0, 1)], [0, 0], train=[0])) == pytest.approx(math.cos(math.pi / 4))
    assert basis.cosine(from_edges([(0, 1)], [0, 1], train=[0, 1])) == 1e-3
    assert basis.cosine(from_edges([(0, 1)], [1, 1], train=[0, 1])) == 1


@pytest.mark.parametrize("orders", [0, 1, 4, 10])
def test_bernstein_polynomials_in_chebyshev_polynomials(orders):
    p, rows = np.linspace(-1, 1, 41), bernstein_in_chebyshev(orders)
    values = np.stack([np.polynomial.chebyshev.chebval(p, row) for row in rows])
    eigen = 1 - p  # of L
    expected = [comb(orders, k) / 2.0**orders * (2 - eigen) ** (orders - k) * eigen**k for k in range(orders + 1)]
    np.testing.assert_allclose(values, expected, atol=1e-10)
    np.testing.assert_allclose(values.sum(0), 1, atol=1e-10)


def batch():
    return Batch([make_client(1), make_client(7, edges=0.0), make_client(9, seed=2), make_client(11, seed=1)], torch.float64, "cpu")


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_chebyshev_filters_equal_dense_eigenvalues_forward_and_backward(count):
    stack, draw = batch(), torch.Generator().manual_seed(0)
    matrix = stack.operator(plain_operator)
    coefficients, x = (torch.randn(4, *shape, dtype=torch.float64, generator=draw, requires_grad=True) for shape in ((count,), (11, 3)))
    out = chebyshev_filter(matrix, coefficients, x)
    for i in range(4):
        dense = torch.zeros(11, 11, dtype=torch.float64)
        own = torch.from_numpy(plain_operator(stack.clients[i]).toarray())
        dense[: len(own), : len(own)] = own
        values, vectors = torch.linalg.eigh(dense)
        terms = torch.stack([torch.cos(k * torch.arccos(values.clamp(-1, 1))) for k in range(count)])
        expected = vectors @ ((coefficients[i] @ terms)[:, None] * (vectors.T @ x[i]))
        torch.testing.assert_close(out[i], expected)
        ours, theirs = (torch.autograd.grad(y.square().sum(), (coefficients, x), retain_graph=True) for y in (out[i], expected))
        torch.testing.assert_close(ours, theirs)
    terms = chebyshev_terms(matrix, x.detach(), count)
    torch.testing.assert_close((terms * coefficients[:, :, None, None]).sum(1), out)


@pytest.mark.parametrize("sparse", [True, False])
def test_mean_responses_are_means_of_propagated_features(sparse):
    stack = Batch([make_client(size, sparse=sparse) for size in (4, 9, 6)], torch.float64, "cpu")
    means = mean_terms(stack, 4)
    for i, client in enumerate(stack.clients):
        features = client.features.toarray() if sparse else client.features
        x = torch.zeros(1, stack.nodes, 5, dtype=torch.float64)
        x[0, : client.num_nodes] = torch.from_numpy(features)
        terms = chebyshev_terms(stack.select([i]).operator(plain_operator), x, 4)
        torch.testing.assert_close(means[i], terms[0].sum(1) / client.num_nodes)


def test_training_labels_leave_all_other_rows_empty():
    stack = batch()
    labels = training_labels(stack, 3)
    for i, client in enumerate(stack.clients):
        expected = np.eye(3)[client.labels] * client.train[:, None]
        np.testing.assert_array_equal(labels[i, : client.num_nodes], expected)
        assert not labels[i, client.num_nodes :].any()
