"""Federations whose validation and test nodes a server holds."""

from __future__ import annotations

import numpy as np
import pytest

from fgl_bench.data.federation import build_server_federation
from fgl_bench.data.sparsity import NoSparsity, TopologySparsity
from fgl_bench.data.splits.dirichlet import Dirichlet
from fgl_bench.data.splits.iid import IID
from fgl_bench.errors import UserError
from tests.reference.cross_client import small_graph

GRAPH = small_graph(nodes=400, classes=4, chance=0.03)
RATIOS = (0.8, 0.1, 0.1)
BASE = {"ratios": None, "per_seed": ["partition", "masks"], "test": "server", "inductive": False}

ONE = {"min_nodes": 1, "shares": "per_class"}


def served(split=None, sparsity=None, clients=10, seed=0):
    return build_server_federation(GRAPH, split or IID(**BASE), sparsity or NoSparsity(), clients, seed, RATIOS)


@pytest.mark.parametrize("split", [IID(**BASE), Dirichlet(**BASE, alpha=0.5, **ONE)])
def test_every_training_node_has_one_client_and_the_rest_is_the_servers(split):
    federation = served(split)
    nodes = np.concatenate([client.nodes for client in federation.clients])
    server = federation.server
    assert sorted(nodes.tolist()) == np.flatnonzero(server.train).tolist()
    assert all(client.train.all() and not client.val.any() and not client.test.any() for client in federation.clients)
    assert (server.train.astype(int) + server.val + server.test <= 1).all()
    assert server.train.sum() == pytest.approx(0.8 * 400, abs=4) and server.test.sum() == pytest.approx(40, abs=5)
    np.testing.assert_array_equal(server.edges, GRAPH.edges)


def test_iid_shares_every_class_out_equally():
    counts = np.stack([np.bincount(client.labels, minlength=4) for client in served().clients])
    assert (np.ptp(counts, axis=0) <= 1).all() and np.ptp(counts.sum(1)) <= 1


def test_every_training_edge_is_inside_a_client_or_between_two_and_a_drop_takes_only_the_former():
    whole, dropped = served(), served(sparsity=TopologySparsity(0.9, "clean"))
    train = whole.server.train
    inside = sum(client.edges.shape[1] for client in whole.observed)
    assert inside + whole.cross_edges.shape[1] == train[GRAPH.edges].all(0).sum()
    np.testing.assert_array_equal(whole.cross_edges, dropped.cross_edges)
    expected = sum(2 * round(0.1 * (client.edges.shape[1] // 2)) for client in whole.observed)
    assert sum(client.edges.shape[1] for client in dropped.observed) == expected < inside
    owner = np.full(400, -1)
    for i, client in enumerate(whole.clients):
        owner[client.nodes] = i
    assert (owner[whole.cross_edges[0]] != owner[whole.cross_edges[1]]).all() and owner[whole.cross_edges].min() >= 0


def test_axes_of_randomness():
    fixed = {**BASE, "per_seed": []}
    assert served(IID(**fixed), seed=0).partition_hash == served(IID(**fixed), seed=1).partition_hash
    assert served(seed=0).partition_hash != served(seed=1).partition_hash
    masks = IID(**{**BASE, "per_seed": ["partition"]})
    np.testing.assert_array_equal(served(masks, seed=0).server.test, served(masks, seed=1).server.test)


def test_who_holds_the_test_is_checked():
    with pytest.raises(UserError, match="split.test=nobody: must be one of clients, server"):
        IID(**{**BASE, "test": "nobody"})
    with pytest.raises(UserError, match=r"no training node"):
        build_server_federation(GRAPH, IID(**BASE), NoSparsity(), 4, 0, (0.001, 0.5, 0.4))


@pytest.mark.parametrize("shares", ["per_class", "per_client"])
def test_dirichlet_gives_every_client_enough_nodes(shares):
    split = Dirichlet(**BASE, alpha=0.1, min_nodes=12, shares=shares)
    federation = served(split, clients=25)
    assert min(client.num_nodes for client in federation.clients) >= 12
    assert sum(client.num_nodes for client in federation.clients) == federation.server.train.sum()
    with pytest.raises(UserError, match="split.min_nodes=13: must be from 1 to 12"):
        served(Dirichlet(**BASE, alpha=0.1, min_nodes=13, shares="per_class"), clients=25)


def test_shares_per_client_vary_less_in_size():
    spread = {}
    for shares in ("per_class", "per_client"):
        sizes = [[c.num_nodes for c in served(Dirichlet(**BASE, alpha=0.1, min_nodes=1, shares=shares), seed=s).clients] for s in range(8)]
        spread[shares] = np.std(sizes)
    assert spread["per_client"] < spread["per_class"]
