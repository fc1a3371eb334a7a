from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.data.canonical import canonical_edges
from fgl_bench.data.datasets import csbm
from tests.data.graphs import configured


def made(**changes):
    return configured("dataset", "csbm", **changes).load(None)


def homophily(graph):
    return (graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]).mean()


def test_the_default_has_coras_counts():
    graph = made()
    assert (graph.num_nodes, graph.edges.shape[1], graph.num_features, graph.num_classes) == (2708, 2 * 5278, 1433, 7)
    assert abs(graph.features.nnz / graph.num_nodes - 18.2) < 0.5
    assert set(graph.features.data) == {1.0}
    assert np.array_equal(graph.edges, canonical_edges(graph.edges[0], graph.edges[1], graph.num_nodes))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(100, 600),
    st.sampled_from([1, 2, 5]),
    st.integers(0, 20).map(lambda twentieths: twentieths / 20),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([1, 4]),
)
def test_edges_and_homophily_are_exact(num_nodes, num_classes, share, locality, communities):
    graph = made(
        num_nodes=num_nodes,
        num_edges=2 * num_nodes,
        num_classes=num_classes,
        homophily=share,
        locality=locality,
        communities_per_class=communities,
    )
    assert graph.edges.shape[1] == 4 * num_nodes
    assert np.isclose(homophily(graph), share if num_classes > 1 else 1, atol=0.5 / (2 * num_nodes) + 1e-9)
    assert np.bincount(graph.labels, minlength=num_classes).min() >= 1


@pytest.mark.parametrize("words", [3, 20, 45])
@pytest.mark.parametrize("signal", [0.0, 0.5])
def test_density_follows_its_key(words, signal):
    graph = made(num_nodes=2000, num_features=100, words_per_node=words, feature_signal=signal)
    count = np.count_nonzero(graph.features.toarray(), axis=1)
    assert abs(count.mean() - words) < 0.03 * words + 0.1
    by_class = [count[graph.labels == kind].mean() for kind in range(7)]
    assert np.ptp(by_class) < 0.1 * words + 0.5


def test_the_same_seed_gives_the_same_graph_and_another_one_another():
    one, same, other = made(), made(), made(seed=1)
    assert np.array_equal(one.edges, same.edges) and (one.features != same.features).nnz == 0
    assert not np.array_equal(one.labels, other.labels) and not np.array_equal(one.edges, other.edges)


def test_class_skew_sets_the_sizes():
    even, skewed = (np.bincount(made(class_skew=skew).labels) for skew in (0.0, 1.0))
    assert np.ptp(even) <= 1
    # 1, 1/2 ... 1/7 sum to 2.593: the largest class has 38.6 %, the smallest a seventh of that.
    assert abs(skewed[0] / 2708 - 0.386) < 0.01 and abs(skewed[0] / skewed[6] - 7) < 0.2


def test_words_tell_classes_apart_only_with_a_signal():
    def between(signal):
        graph = made(feature_signal=signal)
        means = np.stack([np.asarray(graph.features[graph.labels == kind].mean(axis=0)).ravel() for kind in range(7)])
        return np.linalg.norm(means - means.mean(axis=0))

    assert between(0.5) > 3 * between(0.0)


def test_partitions_have_skewed_labels():
    graph = made()
    for split in ("metis", "louvain"):
        clients = configured("split", split).assign(graph, 20, 0)
        top = np.mean([np.bincount(graph.labels[nodes]).max() / nodes.size for nodes in clients])
        assert top > 1.5 * np.bincount(graph.labels).max() / graph.num_nodes


def test_without_words_features_are_dense_and_gaussian():
    graph = made(words_per_node=None, num_features=64, feature_signal=2.0)
    assert isinstance(graph.features, np.ndarray) and graph.features.dtype == np.float32
    norms = [np.linalg.norm(graph.features[graph.labels == kind].mean(axis=0)) for kind in range(7)]
    assert 1.4 < np.mean(norms) < 2.6


def test_few_nodes_are_isolated():
    graph = made()
    assert (np.bincount(graph.edges[0], minlength=graph.num_nodes) == 0).mean() < 0.01


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes"),
    [
        ("csbm_cora", 2708, 5278, 1433, 7),
        ("csbm_pubmed", 19717, 44324, 500, 3),
        ("csbm_computers", 13752, 245861, 767, 10),
        ("csbm_physics", 34493, 247962, 8415, 5),
        ("csbm_arxiv", 169343, 1157799, 128, 40),
    ],
)
def test_presets_have_the_real_sets_counts(name, nodes, edges, features, classes):
    graph = configured("dataset", name).load(None)
    assert (graph.num_nodes, graph.edges.shape[1] // 2, graph.num_features, graph.num_classes) == (nodes, edges, features, classes)


@pytest.mark.parametrize("pairs", [100, 1000])
def test_edges_drawn_in_small_pieces_keep_every_promise(pairs, monkeypatch):
    """What bounds the memory of large graphs: exact counts, nobody isolated, uneven degrees, as in one piece."""
    keys = {"num_nodes": 300, "num_edges": 3000, "num_classes": 5, "homophily": 0.65, "degree_skew": 1.0}
    whole = made(**keys)
    monkeypatch.setattr(csbm, "PAIRS", pairs)
    graph = made(**keys)
    assert graph.edges.shape == (2, 6000) and len(np.unique(graph.edges, axis=1).T) == 6000
    assert homophily(graph) == pytest.approx(0.65, abs=1e-9)
    degrees, usual = (np.bincount(found.edges[0], minlength=300) for found in (graph, whole))
    assert degrees.min() > 0
    assert degrees.std() == pytest.approx(usual.std(), rel=0.2)


def test_a_node_begins_its_first_edge_in_one_piece_only(monkeypatch):
    monkeypatch.setattr(csbm, "PAIRS", 64)
    begun, rng = [], np.random.default_rng(0)

    def draw(size, starts):
        begun.append(starts[:size])
        return rng.integers(1000, size=size), rng.integers(1000, size=size)

    model = configured("dataset", "csbm", num_nodes=1000)
    keys = model._distinct(np.empty(0, dtype=np.int64), 256, np.arange(200), draw)
    assert keys.size == 256
    assert np.concatenate(begun).tolist() == list(range(200))
