"""Bounded label propagation, its graph of clusters, and the parts that METIS makes of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.data.graph import Graph
from fgl_bench.data.splits import label_propagation as module
from fgl_bench.data.splits.label_propagation import Clusters, Weighted, contracted, label_propagation
from tests.data.graphs import configured, graphs


def weighted(graph: Graph) -> Weighted:
    return Weighted(graph.edges, None, np.ones(graph.num_nodes, dtype=np.int64))


def cliques(count: int, size: int) -> Graph:
    """Cliques on a ring of single edges."""
    matrix = np.kron(np.eye(count), np.ones((size, size))) - np.eye(count * size)
    for i in range(count):
        one, other = i * size, (i + 1) % count * size + 1
        matrix[one, other] = matrix[other, one] = 1
    return Graph("cliques", np.ones((count * size, 1), np.float32), np.stack(np.nonzero(matrix)), np.zeros(count * size, np.int64), 1)


def test_cliques_are_found_one_cluster_each():
    found = label_propagation(weighted(cliques(8, 6)), 6, 10, 0)
    assert len(set(found.tolist())) == 8
    assert all(len(set(found[start : start + 6].tolist())) == 1 for start in range(0, 48, 6))


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), cap=st.integers(1, 9), seed=st.integers(0, 5))
def test_no_cluster_is_larger_than_its_bound(graph, cap, seed):
    found = label_propagation(weighted(graph), cap, 3, seed)
    assert np.bincount(found).max() <= cap
    assert np.array_equal(np.unique(found), np.arange(found.max() + 1))


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), cap=st.integers(1, 9))
def test_the_graph_of_clusters_counts_the_edges_between_them(graph, cap):
    clusters = label_propagation(weighted(graph), cap, 2, 0)
    found, count = contracted(weighted(graph), clusters), clusters.max() + 1
    expected = np.zeros((count, count))
    np.add.at(expected, (clusters[graph.edges[0]], clusters[graph.edges[1]]), 1)
    np.fill_diagonal(expected, 0)
    made = np.zeros((count, count))
    made[found.edges[0], found.edges[1]] = found.weights
    assert np.array_equal(made, expected)
    assert np.array_equal(found.sizes, np.bincount(clusters))
    again = contracted(found, np.zeros(count, dtype=np.int64))
    assert again.sizes.tolist() == [graph.num_nodes] and again.edges.shape == (2, 0)


def test_a_weighted_graph_is_clustered_as_the_graph_that_it_stands_for():
    """Two nodes with an edge of weight 3 prefer each other to neighbors by edges of 1."""
    edges = np.array([[0, 0, 1, 1, 2, 2, 3, 3], [1, 3, 0, 2, 1, 3, 0, 2]])
    weights = np.array([3, 1, 3, 1, 1, 3, 1, 3], dtype=np.int32)
    for seed in range(5):
        found = label_propagation(Weighted(edges, weights, np.array([2, 1, 1, 2])), 3, 10, seed)
        assert found[0] == found[1] and found[2] == found[3] and found[0] != found[2]


def test_moves_stop_where_a_cluster_is_full():
    sizes = np.array([1, 1, 1, 2, 1])
    graph = Weighted(np.empty((2, 0), dtype=np.int64), None, sizes)
    clusters = Clusters(graph, np.zeros(6, dtype=np.int64), np.arange(5), sizes.copy(), 4)
    assert clusters.move(np.array([1, 2, 3, 4]), np.array([0, 0, 0, 0])) == 2
    assert clusters.labels.tolist() == [0, 0, 0, 3, 4]  # a third, of two nodes, would make five
    assert clusters.held.tolist() == [3, 0, 0, 2, 1]


def test_neither_threads_nor_mapped_files_change_the_clients(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 500)  # several blocks, some of which see the same labels
    graph = configured("dataset", "csbm", num_nodes=2000, num_edges=8000).load(None)
    split, threads = configured("split", "label_propagation"), torch.get_num_threads()
    one = split.parts(graph, 5, 0)
    np.save(tmp_path / "edges.npy", graph.edges)
    mapped = Graph("x", graph.features, np.load(tmp_path / "edges.npy", mmap_mode="r"), graph.labels, graph.num_classes)
    try:
        torch.set_num_threads(4)
        assert np.array_equal(split.parts(mapped, 5, 0), one)
    finally:
        torch.set_num_threads(threads)
    assert (one[graph.edges[0]] != one[graph.edges[1]]).mean() < 0.3  # a random cut loses 0.8


@pytest.mark.parametrize("enough", [1, 100])
def test_levels_of_clusters_end_in_balanced_parts(enough, monkeypatch):
    monkeypatch.setattr(module, "ENOUGH", enough)
    graph = configured("dataset", "csbm", num_nodes=2000, num_edges=8000).load(None)
    sizes = np.bincount(configured("split", "label_propagation").parts(graph, 8, 0), minlength=8)
    assert sizes.min() > 200 and sizes.max() < 300
