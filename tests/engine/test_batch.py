"""Stacked client graphs: operators, masks, padding, selections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.batch import Batch, DenseBlocks, adjacency, gcn_operator, plain_operator
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.models.gcn import GCN
from tests.engine.graphs import from_edges, make_client
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

SIZES = (1, 4, 9)


def batch_of(clients):
    return Batch(clients, torch.float64, "cpu")


def dense(matrix):
    """A stack of blocks as ``[k, r, c]``."""
    k, _, c = matrix.shape
    return matrix @ torch.eye(c, dtype=torch.float64).expand(k, c, c)


@pytest.fixture
def clients():
    return [make_client(size, seed=i) for i, size in enumerate(SIZES)] + [make_client(6, edges=0.0)]


def test_the_gcn_operator_is_that_of_pyg(clients):
    operator = dense(batch_of(clients).operator(gcn_operator))
    for block, client in zip(operator, clients, strict=True):
        n = client.num_nodes
        edges, weights = gcn_norm(torch.from_numpy(client.edges), num_nodes=n, dtype=torch.float64)
        torch.testing.assert_close(block[:n, :n], to_dense_adj(edges, edge_attr=weights, max_num_nodes=n)[0], rtol=1e-12, atol=1e-12)
        assert not block[n:].any() and not block[:, n:].any(), "padding takes part"


def test_operators_worked_out_by_hand():
    # A path 0 - 1 - 2 and the isolated node 3: degrees 1, 2, 1, 0.
    batch = batch_of([from_edges([(0, 1), (1, 2)], [0, 0, 0, 0])])
    path = torch.zeros(4, 4, dtype=torch.float64)
    path[0, 1] = path[1, 0] = path[1, 2] = path[2, 1] = 1
    assert torch.equal(dense(batch.operator(adjacency))[0], path)
    torch.testing.assert_close(dense(batch.operator(plain_operator))[0], path / 2**0.5)
    loops = torch.diag(torch.tensor([1 / 2, 1 / 3, 1 / 2, 1.0], dtype=torch.float64))
    torch.testing.assert_close(dense(batch.operator(gcn_operator))[0], path / 6**0.5 + loops)
    assert batch.degree[0].tolist() == [1, 2, 1, 0]


def test_masks_labels_and_features_lie_in_their_rows_and_padding_is_empty(clients):
    batch = batch_of(clients)
    assert (batch.size, batch.nodes) == (4, max(SIZES))
    assert batch.num_nodes.tolist() == [1, 4, 9, 6]
    features = dense(batch.features)
    for i, client in enumerate(clients):
        n = client.num_nodes
        assert batch.valid[i].tolist() == [True] * n + [False] * (batch.nodes - n)
        for name in ("train", "val", "test"):
            assert batch.__dict__[name][i, :n].tolist() == getattr(client, name).tolist()
            assert not batch.__dict__[name][i, n:].any()
        assert batch.labels[i, :n].tolist() == client.labels.tolist()
        np.testing.assert_array_equal(features[i, :n], client.features.toarray())
        assert not features[i, n:].any()
        assert batch.degree[i, :n].tolist() == np.bincount(client.edges[0], minlength=n).tolist()
        assert batch.num_train[i] == client.train.sum()


def test_weights_of_training_nodes_make_the_mean_of_each_client(clients):
    clients[1] = replace(clients[1], train=np.zeros(4, dtype=bool))
    batch = batch_of(clients)
    where = batch.training_nodes
    losses = torch.rand(batch.size, batch.nodes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    picked, owner = losses.flatten()[where.index] * where.weights, where.index // batch.nodes
    for i, client in enumerate(clients):
        mean = losses[i, : client.num_nodes][torch.from_numpy(client.train)].mean() if client.train.any() else torch.zeros(())
        assert picked[owner == i].sum().item() == pytest.approx(mean.item())
    assert torch.equal(where.labels, batch.labels.flatten()[where.index])


def test_an_unlabelled_node_is_never_scored():
    client = from_edges([(0, 1)], [-1, 2], train=[1])
    client = replace(client, test=np.array([False, False]))
    batch = batch_of([client])
    assert batch.labels.tolist() == [[0, 2]], "labels are valid indices"
    assert not (batch.train | batch.val | batch.test)[0, 0]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6, unique=True))
@settings(max_examples=20)
def test_select_takes_replicas_and_keeps_their_numbers(rows):
    clients = [make_client(size, seed=i) for i, size in enumerate(SIZES)] + [make_client(6, edges=0.0)]
    whole = batch_of(clients)
    whole.operator(gcn_operator)
    part = whole.select(rows)
    assert part.size == len(rows) and part.nodes == whole.nodes
    assert part.replicas.tolist() == rows
    for name in ("labels", "valid", "train", "val", "test", "degree"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[rows])
    assert part.num_train.tolist() == whole.num_train[rows].tolist()
    for build in (gcn_operator, adjacency):  # made before and after the selection
        assert torch.equal(dense(part.operator(build)), dense(whole.operator(build))[rows])
    assert torch.equal(dense(part.features), dense(whole.features)[rows])
    fresh, same = batch_of([clients[i] for i in rows]).training_nodes, part.training_nodes
    assert torch.equal(same.labels, fresh.labels) and torch.equal(same.weights, fresh.weights)
    again = part.select([0])
    assert again.replicas.tolist() == rows[:1]
    assert torch.equal(dense(again.operator(gcn_operator)), dense(whole.operator(gcn_operator))[rows[:1]])


def test_operators_are_made_once(clients):
    calls = []

    def counted(client):
        calls.append(client)
        return gcn_operator(client)

    batch = batch_of(clients)
    for _ in range(3):
        batch.operator(counted)
        batch.select([0, 1]).operator(counted)
    assert len(calls) == len(clients)


def test_storage_follows_the_density():
    values = np.ones((8, 4))
    sparse = values * (np.arange(4) == 0)
    client = make_client(8, features=4)
    for features, kind in [(values, DenseBlocks), (sparse, BlockSparse)]:
        for form in (features, sp.csr_matrix(features)):
            assert isinstance(batch_of([replace(client, features=form)]).features, kind)


def test_dense_and_sparse_features_train_equal_models(monkeypatch):
    federation = small_federation(0)
    models = []
    for threshold in (0.0, 1.0):  # above which features are stored dense
        monkeypatch.setattr("fgl_bench.engine.batch.DENSE_ABOVE", {"cpu": threshold})
        run = simulate([federation], FedAvg(), synchronous(), rounds=4, model=GCN(hidden=4, layers=2, dropout=0.5))
        models.append(torch.stack([trained for trips in run.trips for _, trained in trips]))
        kinds = type(run.sim.trainer.batch.features)
        assert kinds is (DenseBlocks if threshold == 0.0 else BlockSparse)
    torch.testing.assert_close(*models, rtol=1e-9, atol=1e-9)
