"""GraphFed: distances between subgraphs, and the averages made of them."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch

from fgl_bench.algorithms.cross_client.graphfed import WEIGHTINGS, GraphFed, client_distances
from fgl_bench.data.graph import ClientGraph
from tests.algorithms.crossing import run
from tests.algorithms.test_fedcross import SHARED
from tests.reference.cross_client import small_served


def graphfed(**changes):
    keys = {**SHARED, "fanout_remote": 3, "sampling": "uniform", "interval": 1, "weighting": "similarity", "sources": 256}
    return GraphFed(**{**keys, **changes})


def test_distance_of_a_path_by_hand():
    """Nodes 0, 1 of one client and 2, 3 of another on the path 0 - 2 - 1 - 3: lengths 1, 3, 1, 1."""
    mask = np.zeros(2, dtype=bool)
    clients = [
        ClientGraph(np.array(ids), np.zeros((2, 1)), np.zeros((2, 0), int), mask * 1, mask, mask, mask) for ids in ([0, 1], [2, 3], [4, 5])
    ]
    half = np.array([[0, 2], [1, 2], [1, 3]]).T
    found = client_distances(clients, np.concatenate([half, half[::-1]], 1), 256, np.random.default_rng(0))
    assert found[0, 1] == found[1, 0] == pytest.approx(6 / 4)
    assert np.isinf(found[2]).all() and np.isinf(found[0, 0])


def test_distances_are_those_of_all_shortest_paths():
    federation = small_served()
    found = client_distances(federation.observed, federation.cross_edges, 256, np.random.default_rng(0))
    held = [set(client.nodes.tolist()) for client in federation.observed]
    for a in range(4):
        for b in range(4):
            pairs = [(x, y) for x, y in federation.cross_edges.T.tolist() if x in held[a] and y in held[b]]
            if a == b or not pairs:
                assert np.isinf(found[a, b])
                continue
            lengths = dict(nx.all_pairs_shortest_path_length(nx.Graph(pairs)))
            each = [n for x, to in lengths.items() for y, n in to.items() if x in held[a] and y in held[b]]
            assert found[a, b] == pytest.approx(np.mean(each))


def test_a_sample_has_every_source_once():
    """On the path 0, 10, 1, 11, 2 the ends of either client are 2 hops from the other's nodes on average, the inner node is 1."""
    clients = [SimpleNamespace(nodes=np.array(nodes), num_nodes=3) for nodes in ([0, 1, 2], [10, 11, 12])]
    half = np.array([[0, 10], [1, 10], [1, 11], [2, 11]]).T
    draws = [client_distances(clients, np.concatenate([half, half[::-1]], 1), 2, np.random.default_rng(s))[0, 1] for s in range(30)]
    assert set(draws) == {1.5, 2.0}


def test_clients_that_share_no_edge_are_infinitely_far_apart():
    clients = [SimpleNamespace(nodes=np.array(nodes), num_nodes=len(nodes)) for nodes in ([0, 2], [1])]
    found = client_distances(clients, np.empty((2, 0), dtype=np.int64), 256, np.random.default_rng(0))
    assert found.shape == (2, 2) and np.isinf(found).all()


def test_weights_by_hand():
    distance = torch.tensor([[torch.inf, 1.0, 3.0], [1.0, torch.inf, torch.inf], [3.0, torch.inf, torch.inf]]).double()
    sizes = torch.tensor([[2.0, 1.0, 4.0]]).double()
    similar = WEIGHTINGS["similarity"](distance, sizes)
    torch.testing.assert_close(similar[0], torch.tensor([2.0, 0.5, 1.0]).double() / 3.5)
    torch.testing.assert_close(similar[1], torch.tensor([1.0, 1.0, 0.0]).double() / 2)
    authors = WEIGHTINGS["authors"](distance, sizes)
    torch.testing.assert_close(authors[0], torch.tensor([0.0, 0.25, 0.75]).double())
    alone = WEIGHTINGS["authors"](torch.full((2, 2), torch.inf).double(), sizes)
    torch.testing.assert_close(alone, torch.eye(2).double())


def test_equal_distances_give_the_weighted_mean_but_for_the_own_model():
    distance = torch.full((3, 3), 2.0).double()
    sizes = torch.tensor([[2.0, 1.0, 4.0]]).double()
    weights = WEIGHTINGS["similarity"](distance, sizes)
    for own in range(3):
        others = [i for i in range(3) if i != own]
        torch.testing.assert_close(weights[own, others] / weights[own, others].sum(), sizes[0, others] / sizes[0, others].sum())


def test_clients_receive_their_own_averages_and_the_edge_lists_travel_once():
    federation, method = small_served(), graphfed()
    recorded = run([federation], method, rounds=2)
    trained = torch.stack([trips[0][1] for trips in recorded.trips])
    received = torch.stack([trips[1][0] for trips in recorded.trips])
    torch.testing.assert_close(received, method.weights[0] @ trained)
    assert not torch.allclose(received[0], received[1])
    model = 4 * recorded.sim.setting.layout.count
    embeddings = method.moved.client_bytes()[0].sum((0, 1))
    history = recorded.histories[0]
    assert history.upload[0] == 0 and history.upload[1] == 4 * model + embeddings[0] + 16 * federation.cross_edges.shape[1]
    assert history.download[1] == 4 * model + embeddings[1]
