"""FedStruct: the plain loop on dense matrices, the random walk by hand, what is sent."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fgl_bench.algorithms.fedstruct import FedStruct, joined
from fgl_bench.data.pooling import pool
from fgl_bench.errors import Unsuited, UserError
from fgl_bench.models.gcn import GCN
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous
from tests.test_out_of_core import yaml

KEYS = {"hops": 3, "width": 4, "hidden": 5, "spread": 0.05, "structure_lr": 0.02, "structure_weight_decay": 1e-3}


def method(**changes):
    return FedStruct(**{**KEYS, **changes})


def crossing(seed):
    """A small federation with a few edges between clients."""
    federation = small_federation(seed)
    pairs = np.array([(a.nodes[i], b.nodes[-1 - i]) for i in (0, 1) for a, b in pairwise(federation.clients)])
    return replace(federation, cross_edges=np.concatenate([pairs, pairs[:, ::-1]]).T)


def run(algorithm, federations=None, **settings):
    federations = federations or [crossing(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, synchronous(), model=GCN(hidden=8, layers=2, dropout=0.0), **{"rounds": 3, **settings})


def symmetric(edges, count):
    matrix = torch.eye(count).double()
    matrix[edges[0], edges[1]] = 1.0
    scale = matrix.sum(1).rsqrt()
    return scale[:, None] * matrix * scale


def walk(federation):
    """P of the union; node ids of these federations are consecutive."""
    matrix = torch.eye(sum(client.num_nodes for client in federation.clients)).double()
    for edges in (federation.cross_edges, *(client.nodes[client.edges] for client in federation.clients)):
        matrix[edges[0], edges[1]] = 1.0
    return matrix / matrix.sum(1, keepdim=True)


def logits_of(own, nodes, spread, operator, x, rows):
    hidden = torch.relu(operator @ x @ own["conv0.weight"] + own["conv0.bias"])
    hidden = operator @ hidden @ own["conv1.weight"] + own["conv1.bias"]
    normal = functional.layer_norm(nodes, nodes.shape[1:], own["structure_norm.weight"], own["structure_norm.bias"])
    inner = torch.relu(normal @ own["structure0.weight"] + own["structure0.bias"])
    return hidden + (spread @ (inner @ own["structure1.weight"] + own["structure1.bias"]))[rows]


@pytest.mark.parametrize(("epochs", "hops"), [(1, 3), (2, 1)])
def test_it_is_the_plain_loop(epochs, hops):
    federation, algorithm = crossing(0), method(hops=hops)
    result = run(algorithm, [federation], local_epochs=epochs)
    spread = torch.linalg.matrix_power(walk(federation), hops)
    nodes = initial_nodes(federation)
    server = torch.optim.Adam([nodes], 0.02, weight_decay=1e-3)
    models = [{name: value.clone() for name, value in result.named(result.sim.initial[0]).items()} for _ in federation.clients]
    optimizers = [torch.optim.Adam(own.values(), 0.01, weight_decay=5e-4) for own in models]
    share = np.array([client.train.sum() for client in federation.clients]) / sum(client.train.sum() for client in federation.clients)
    for number in range(3):
        nodes.grad = torch.zeros_like(nodes)
        for i, (client, own, adam) in enumerate(zip(federation.clients, models, optimizers, strict=True)):
            x = client.features.toarray() if hasattr(client.features, "toarray") else client.features
            operator, x = symmetric(client.edges, client.num_nodes), torch.from_numpy(np.asarray(x, dtype=np.float64))
            for _ in range(epochs if client.train.any() else 0):
                seen = nodes.detach().clone().requires_grad_()
                for value in own.values():
                    value.requires_grad_()
                logits = logits_of(own, seen, spread, operator, x, client.nodes)
                loss = functional.cross_entropy(logits[client.train], torch.from_numpy(client.labels[client.train]))
                adam.zero_grad()
                loss.backward()
                adam.step()
                nodes.grad += share[i] / epochs * seen.grad
            if client.train.any():
                trained = result.named(result.trips[i][number][1])
                for name, value in own.items():
                    torch.testing.assert_close(trained[name], value.detach(), rtol=1e-7, atol=1e-8)
        server.step()
        mean = {name: sum(share[i] * own[name].detach() for i, own in enumerate(models)) for name in models[0]}
        for own in models:
            for name, value in own.items():
                value.data.copy_(mean[name])
    torch.testing.assert_close(algorithm.nodes[0], nodes, rtol=1e-7, atol=1e-8)


def initial_nodes(federation):
    fresh = method()
    run(fresh, [federation], rounds=1)
    fresh.prepare(fresh.setting)
    return fresh.nodes[0].clone()


def test_the_walk_crosses_clients():
    federation = crossing(0)
    expected = walk(federation).numpy()
    for client, before in zip(method().federate(federation).clients, federation.clients, strict=True):
        np.testing.assert_allclose(client.walk.toarray(), expected)
        assert np.array_equal(client.place, before.nodes) and client.edges is before.edges
    assert (expected != walk(small_federation(0)).numpy()).any()


def test_the_walk_of_a_path_by_hand():
    union = pool(small_federation(0), crossing=True).clients[0]
    parts = {name: getattr(union, name)[:3] for name in ("nodes", "labels", "train", "val", "test", "features")}
    path = replace(union, **parts, edges=np.array([[0, 1, 1, 2], [1, 0, 2, 1]]))
    (client,) = joined(path, (path,))
    np.testing.assert_allclose(client.walk.toarray(), [[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]])


def test_other_clients_structure_moves_a_clients_logits():
    algorithm = method(spread=1.0)
    setting = run(algorithm).sim.setting
    batch = setting.batch
    theta = torch.randn(batch.size, setting.layout.size, dtype=batch.dtype, generator=torch.Generator().manual_seed(0))
    views = setting.layout.views(theta)

    def logits():
        with torch.no_grad():
            return setting.model.forward(views, batch, setting.model.first(views, batch), lambda x, rate=None: x).logits

    before = logits()
    federation = crossing(0)
    reach = torch.linalg.matrix_power(walk(federation), 3) > 0
    node = int(federation.cross_edges[1, 0])
    algorithm.nodes[0, node] += torch.arange(4).double()
    moved = (logits() != before).any(-1)
    for i, client in enumerate(federation.clients):
        assert torch.equal(moved[i, : client.num_nodes], reach[client.nodes, node])
    assert not moved[len(federation.clients) :].any()  # of the other seed


def test_absent_clients_do_not_move_the_structure_features():
    algorithm = method()
    result = run(algorithm, rounds=1)
    nodes, count = algorithm.nodes.clone(), len(small_federation(0).clients)
    gradient = torch.randn(2, count, *nodes.shape[1:], dtype=torch.float64)
    arrived = torch.zeros(2, count, dtype=torch.bool)
    arrived[1, 0] = True
    algorithm.setting = replace(result.sim.setting, full_participation=False)
    algorithm.mix({"structure": gradient}, arrived)
    assert torch.equal(algorithm.nodes[0], nodes[0])
    assert (algorithm.nodes[1] != nodes[1]).any()


def test_what_is_sent():
    algorithm = method()
    result = run(algorithm)
    for s, seed in enumerate((0, 1)):
        clients, count = crossing(seed).clients, algorithm.nodes.shape[1]
        trips = 4 * 2 * len(clients) * (algorithm.setting.layout.count + count * 4)
        degrees = int((walk(crossing(seed)) > 0).sum())
        assert result.histories[s].upload[2] == trips + 4 * 2 * degrees
        assert result.histories[s].download[2] == trips + 4 * sum(client.num_nodes for client in clients) ** 2


def test_what_it_refuses():
    with pytest.raises(Unsuited, match=r"split\.test=clients"):
        method().check_choices(GCN(8, 2, 0.0), SimpleNamespace(test="server"))
    federation = small_federation(0)
    stored = tuple(SimpleNamespace(folder="there") for _ in federation.clients)
    with pytest.raises(UserError, match="out_of_core=false"):
        yaml("algorithm", "fedstruct").federate(SimpleNamespace(clients=stored))
