from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from fgl_bench.data.canonical import adjacency, canonical_edges, canonical_features, largest_component, row_normalized
from fgl_bench.data.graph import Graph
from fgl_bench.errors import UserError
from tests.data.graphs import graphs

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40)


@given(PAIRS)
def test_edges_are_the_symmetric_set_of_the_pairs_without_loops(pairs):
    row, col = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    expected = sorted({(u, v) for u, v in pairs if u != v} | {(v, u) for u, v in pairs if u != v})
    edges = canonical_edges(row, col, 10)
    assert edges.dtype == np.int64
    assert [tuple(pair) for pair in edges.T.tolist()] == expected


@given(PAIRS, st.randoms())
def test_edges_do_not_depend_on_order_direction_or_repetition(pairs, random):
    again = [pair[::-1] if random.random() < 0.5 else pair for pair in pairs + pairs[:3]]
    random.shuffle(again)
    one, other = (canonical_edges(*np.array(each, dtype=np.int64).reshape(-1, 2).T, 10) for each in (pairs, again))
    assert np.array_equal(one, other)


def test_features_become_sparse_where_most_entries_are_zero_and_dense_elsewhere():
    sparse, dense = np.eye(4), np.ones((4, 4))
    assert sp.issparse(canonical_features(sparse)) and isinstance(canonical_features(sp.csr_matrix(dense)), np.ndarray)
    for features in (sparse, dense):
        for form in (features, sp.coo_matrix(features)):
            made = canonical_features(form)
            assert made.dtype == np.float32
            assert np.array_equal(made.toarray() if sp.issparse(made) else made, features)


def test_sparse_features_hold_no_zeros_and_no_duplicates():
    stored = sp.csr_matrix((np.array([1.0, 2.0, 0.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 5))
    made = canonical_features(stored)
    assert made.nnz == 1 and made[0, 1] == 3


@given(graphs())
def test_adjacency_equals_the_edge_list(graph):
    matrix = adjacency(graph.edges, graph.num_nodes)
    assert np.array_equal(np.stack(matrix.nonzero()), graph.edges)
    assert (matrix != matrix.T).nnz == 0


def test_largest_component_keeps_its_nodes_features_and_edges():
    edges = canonical_edges(np.array([0, 2, 3, 4]), np.array([1, 3, 4, 2]), 6)
    features = sp.csr_matrix(np.diag(np.arange(1.0, 7.0)).astype(np.float32))
    part = largest_component(Graph("toy", features, edges, np.arange(6), 6, owner=np.arange(6)))
    assert part.labels.tolist() == part.owner.tolist() == [2, 3, 4]
    assert part.features.sum(axis=1).ravel().tolist() == [[3.0, 4.0, 5.0]]
    assert part.edges.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]


def test_rows_of_features_are_divided_by_their_sum_as_in_pyg():
    features = np.array([[1, 3, 0], [0, 0, 0], [2, 0, 0], [-1, 2, 3]], dtype=np.float32)
    whole = NormalizeFeatures()(Data(x=torch.from_numpy(features[:3]))).x.numpy()
    assert np.array_equal(row_normalized(features[:3]), whole), "equal where the smallest entry is 0 and no sum is below 1"
    expected = NormalizeFeatures()(Data(x=torch.from_numpy(features[[0, 2]]))).x.numpy()
    for form in (features, sp.csr_matrix(features)):
        scaled = row_normalized(form)
        assert scaled.dtype == np.float32 and sp.issparse(scaled) == sp.issparse(form)
        dense = scaled.toarray() if sp.issparse(scaled) else scaled
        assert np.array_equal(dense[[0, 2]], expected)
        assert np.array_equal(dense[1], [0, 0, 0]) and np.allclose(dense[3], [-0.25, 0.5, 0.75])


@pytest.mark.parametrize("row", [[-1, 1, 0], [-2, 1, 0]])
def test_rows_whose_sum_is_not_positive_are_refused(row):
    features = np.array([[1, 3, 0], [0, 0, 0], row], dtype=np.float32)
    for form in (features, sp.csr_matrix(features)):
        with pytest.raises(UserError, match=r"dataset\.normalize_features=true: .* 1 nodes \(the first is 2\)"):
            row_normalized(form)
