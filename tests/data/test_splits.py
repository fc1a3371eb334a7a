from __future__ import annotations

import numpy as np
import pymetis
import pytest
import torch
import torch_geometric
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import fill_empty
from fgl_bench.data.splits.iid import IID
from fgl_bench.data.splits.louvain import chop, deal
from fgl_bench.errors import UserError
from tests.data.graphs import configured, graphs, make_graph

DISJOINT = ["metis", "louvain", "dirichlet", "iid", "label_propagation"]
CONFIGURED = {
    **{name: configured("split", name) for name in [*DISJOINT, "metis_overlap", "natural", "fed_pub"]},
    "louvain_igraph": configured("split", "louvain", backend="igraph"),
}


def with_owner(graph: Graph, owner: np.ndarray) -> Graph:
    return Graph(graph.name, graph.features, graph.edges, graph.labels, graph.num_classes, owner=owner)


@pytest.mark.parametrize("name", [*DISJOINT, "louvain_igraph", "fed_pub"])
@settings(max_examples=60, deadline=None)
@given(graph=graphs(), share=st.floats(0, 1), seed=st.integers(0, 5))
def test_every_node_has_exactly_one_client_for_any_number_of_clients(name, graph, share, seed):
    num_clients = 1 + round(share * (graph.num_nodes - 1))
    clients = CONFIGURED[name].assign(graph, num_clients, seed)
    assert len(clients) == num_clients
    assert all(nodes.size > 0 and (np.diff(nodes) > 0).all() for nodes in clients)
    assert sorted(np.concatenate(clients).tolist()) == list(range(graph.num_nodes))
    again = CONFIGURED[name].assign(graph, num_clients, seed)
    assert all(np.array_equal(one, other) for one, other in zip(clients, again, strict=True))


@pytest.mark.parametrize("name", [*DISJOINT, "louvain_igraph", "metis_overlap"])
def test_neighbouring_seeds_give_different_clients(name):
    graph = configured("dataset", "csbm", num_nodes=400, num_edges=900).load(None)
    drawn = [np.concatenate(CONFIGURED[name].assign(graph, 5, seed)).tobytes() for seed in range(4)]
    assert len(set(drawn)) == 4


@pytest.mark.parametrize("parts", [2, 5, 10])
def test_unseeded_metis_is_pymetis_on_a_networkx_graph(parts):
    """OpenFGL's call: no seed, no option, the neighbors in networkx' order."""
    graph = configured("dataset", "csbm", num_nodes=500, num_edges=1500).load(None)
    drawn = torch_geometric.utils.to_networkx(Data(edge_index=torch.from_numpy(graph.edges), num_nodes=graph.num_nodes), to_undirected=True)
    _, expected = pymetis.part_graph(parts, drawn)
    for seed in (0, 7):
        clients = configured("split", "metis", seeded=False).assign(graph, parts, seed)
        for number, nodes in enumerate(clients):
            assert np.array_equal(nodes, np.flatnonzero(np.array(expected) == number))
    assert any(
        not np.array_equal(one, other) for one, other in zip(clients, configured("split", "metis").assign(graph, parts, 0), strict=True)
    )


def test_a_seed_of_louvain_stands_for_the_repetition_s():
    graph = configured("dataset", "csbm", num_nodes=400, num_edges=900).load(None)
    fixed = [configured("split", "louvain", seed=5).assign(graph, 5, seed) for seed in (0, 1)]
    assert all(np.array_equal(one, other) for one, other in zip(*fixed, strict=True))
    sizes = [nodes.size for nodes in configured("split", "louvain", deal="fedgta", seed=5).assign(graph, 5, 0)]
    assert max(sizes) <= 81 + 80 and sum(sizes) == 400 and sizes != [nodes.size for nodes in fixed[0]]


@pytest.mark.parametrize("name", ["metis", "label_propagation", "fed_pub"])
def test_clients_are_of_like_size_and_cut_few_edges(name):
    graph = configured("dataset", "csbm").load(None)
    clients = CONFIGURED[name].assign(graph, 10, 0)
    owner = np.empty(graph.num_nodes, dtype=int)
    for i, nodes in enumerate(clients):
        owner[nodes] = i
    assert max(nodes.size for nodes in clients) <= 1.05 * graph.num_nodes / 10 + 1
    assert (owner[graph.edges[0]] != owner[graph.edges[1]]).mean() < 0.3  # a random cut loses 0.9


def test_louvain_separates_cliques():
    # Four cliques of six nodes, one client each.
    row, col = np.nonzero(np.kron(np.eye(4), np.ones((6, 6))) - np.eye(24))
    graph = Graph("cliques", np.ones((24, 1), np.float32), np.stack([row, col]), np.zeros(24, np.int64), 1)
    for backend in ("python_louvain", "igraph"):
        clients = configured("split", "louvain", backend=backend, delta=0).assign(graph, 4, 0)
        assert [nodes.tolist() for nodes in clients] == [list(range(start, start + 6)) for start in range(0, 24, 6)]


def test_long_communities_are_cut_in_order_and_the_rest_goes_last():
    pieces = chop([np.arange(7), np.arange(10, 12)], 3)
    assert [piece.tolist() for piece in pieces] == [[0, 1, 2], [10, 11], [3, 4, 5], [6]]


def test_dealing_by_hand():
    # fair 10, delta 2: a client takes a piece while it stays below 12, and leaves the ring at 10.
    # 6 -> client 0; 6 does not fit there (12), -> 1; 5 -> 1 (11, so it leaves); 4 -> 2, the next one, and 3 -> 2 (7).
    assert deal(np.array([6, 6, 5, 4, 3]), 3, 10, 12).tolist() == [0, 1, 1, 2, 2]
    # Nobody has room for the third piece: the smallest client takes it.
    assert deal(np.array([9, 8, 7]), 2, 10, 12).tolist() == [0, 1, 1]
    # FedGTA's rule, fair 10: full at 11, below 12. 9 -> 0, 8 -> 1; nobody has room for 7: the client at the pointer, 1, takes it. Of
    # two clients that are full one stays, so the ones find no room either and stay there.
    assert deal(np.array([9, 8, 7]), 2, 11, 12, level=False).tolist() == [0, 1, 1]
    assert deal(np.array([11, 8, 8, 1]), 2, 11, 12, level=False).tolist() == [0, 1, 1, 1]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(1, 12), st.integers(0, 6))
def test_dealing_ends_and_keeps_below_the_limit_where_it_can(sizes, num_clients, delta):
    sizes = np.sort(np.array(sizes))[::-1]
    fair = int(sizes.sum()) // num_clients
    held = np.bincount(deal(sizes, num_clients, fair, fair + delta), sizes, minlength=num_clients)
    assert held.sum() == sizes.sum()
    assert held.max() < max(fair + delta, 1) + sizes.max()


@given(st.lists(st.integers(0, 7), min_size=8, max_size=60))
def test_empty_parts_are_filled_from_the_largest(parts):
    before = np.array(parts)
    after = fill_empty(before, 8)
    sizes = np.bincount(before, minlength=8)
    assert (np.bincount(after, minlength=8) > 0).all()
    moved = before != after
    assert (sizes[after[moved]] == 0).all()
    assert not moved.any() or (sizes == 0).any()


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (1 + np.arange(20) % 4, "clients from 1 to 4"),
        (np.arange(20) % 4 - 1, "clients from -1 to 2"),
        (np.arange(10) % 4, r"int64 of the shape \[10\]"),
        (np.zeros(20), "float64"),
        (np.zeros((20, 1), dtype=int), r"int64 of the shape \[20, 1\]"),
        (None, "None"),
        ([0] * 20, "a list"),
    ],
)
def test_what_an_own_split_returns_is_checked(part, said):
    class Own(IID):
        def parts(self, graph, num_clients, seed):
            return part

    split = Own(**vars(configured("split", "iid")))
    with pytest.raises(UserError, match=rf"^Own\.parts\(\) returned {said}.*; expected an array of 20 integers from 0 to 3"):
        split.assign(make_graph(20, 40), 4, 0)


def test_iid_clients_differ_by_one_node_at_most_in_all_and_in_every_class():
    graph = make_graph(103, 200, num_classes=4)
    clients = CONFIGURED["iid"].assign(graph, 7, 3)
    counts = np.array([np.bincount(graph.labels[nodes], minlength=4) for nodes in clients])
    assert np.ptp(counts.sum(axis=1)) <= 1 and (np.ptp(counts, axis=0) <= 1).all()


def test_dirichlet_alpha_sets_the_skew():
    graph = make_graph(3000, 10, num_classes=5)
    shares = {}
    for alpha in (0.1, 1000.0):
        clients = configured("split", "dirichlet", alpha=alpha).assign(graph, 10, 0)
        counts = np.array([np.bincount(graph.labels[nodes], minlength=5) for nodes in clients])
        shares[alpha] = (counts.max(axis=1) / counts.sum(axis=1)).mean()
    assert shares[1000.0] < 0.25 < 0.5 < shares[0.1]


def test_overlapping_clients_are_halves_of_the_same_parts():
    graph = configured("dataset", "csbm").load(None)
    parts = CONFIGURED["metis"].assign(graph, 2, 4)
    clients = CONFIGURED["metis_overlap"].assign(graph, 10, 4)
    for i, nodes in enumerate(clients):
        part = parts[i // 5]
        assert np.isin(nodes, part).all() and nodes.size == part.size // 2 and (np.diff(nodes) > 0).all()
    assert np.intersect1d(clients[0], clients[1]).size > 0 == np.intersect1d(clients[0], clients[5]).size


def test_unseeded_overlap_samples_the_parts_of_unseeded_metis():
    graph = configured("dataset", "csbm").load(None)
    parts = configured("split", "metis", seeded=False).assign(graph, 2, 4)
    drawn = [configured("split", "metis_overlap", seeded=False).assign(graph, 10, seed) for seed in (4, 5)]
    assert all(np.isin(nodes, parts[i // 5]).all() for clients in drawn for i, nodes in enumerate(clients))
    assert not np.array_equal(drawn[0][0], drawn[1][0])


def test_natural_clients_are_the_owners():
    graph = with_owner(make_graph(6, 5), np.array([4, 2, 4, 2, 2, 9]))
    for num_clients in (None, 3):
        assert [nodes.tolist() for nodes in CONFIGURED["natural"].assign(graph, num_clients, 0)] == [[1, 3, 4], [0, 2], [5]]
    with pytest.raises(UserError, match="num_clients=20: split=natural .* needs num_clients=3"):
        CONFIGURED["natural"].assign(graph, 20, 0)
    with pytest.raises(UserError, match="split=natural: dataset=toy has no owners"):
        CONFIGURED["natural"].assign(make_graph(6, 5), None, 0)
