"""Figures of federations: the numbers behind them, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.papers.figures import topologies


def client(edges: list[tuple[int, int]], labels: list[int]) -> ClientGraph:
    both = sorted(edges + [(j, i) for i, j in edges])
    n, empty = len(labels), np.zeros(len(labels), dtype=bool)
    matrix = np.array(both, dtype=np.int64).reshape(-1, 2).T
    return ClientGraph(np.arange(n), np.ones((n, 1), np.float32), matrix, np.array(labels), empty, empty, empty)


PATH = client([(0, 1), (1, 2)], [0, 0, 1, 2])  # node 3 stands alone


def test_homophily_is_by_class_and_undefined_without_edges() -> None:
    # class 0: neighbours of 0 and 1 are 1, 0, 2: two of three alike; class 1: node 2's only neighbour is of class 0
    assert topologies.homophily(PATH, 3) == pytest.approx([2 / 3, 0.0, np.nan], nan_ok=True)
    assert topologies.homophily(client([(0, 1)], [0, -1]), 1) == pytest.approx([np.nan], nan_ok=True)


def test_paths_are_between_connected_nodes_and_the_largest_component_counts_nodes() -> None:
    # 0-1, 1-2 of length 1, 0-2 of length 2, each in both directions
    assert topologies.distances(PATH) == pytest.approx((4 / 3, 3 / 4))
    assert topologies.distances(client([], [0, 1])) == pytest.approx((np.nan, 1 / 2), nan_ok=True)


def test_an_arrow_for_everyone_that_is_heard() -> None:
    mixing = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    [axis] = topologies.graphs({"round 1": mixing}, "title").axes
    assert len(axis.patches) == 3
    sizes = axis.collections[0].get_sizes()
    assert sizes[2] > sizes[0] > sizes[1]


def test_heterogeneity_shows_every_class_of_every_client() -> None:
    federation = Federation("d", 0, 3, 1, (PATH, PATH), (PATH, PATH), np.empty((2, 0), np.int64), "")
    figure = topologies.heterogeneity(federation, "title")
    assert figure.axes[0].get_images()[0].get_array().tolist() == [[2, 2], [1, 1], [1, 1]]
