"""Centralised training: the pooled graph, scores client by client, trips as a federation counts them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.global_ import Global
from fgl_bench.algorithms.local import Local
from fgl_bench.data.federation import induce
from fgl_bench.data.graph import Federation
from fgl_bench.data.pooling import pool
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.evaluation.metrics import METRICS
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import assert_same_trips
from tests.data.graphs import configured
from tests.data.test_federation import SMALL, build
from tests.data.test_server_federation import served
from tests.engine.graphs import federation, make_client
from tests.reference import sync
from tests.reference.small import small_federation
from tests.small_runs import counts, simulate, synchronous
from tests.test_equivalence import assert_same, start


def run(graph, federations=None, **settings):
    federations = federations or [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, Global(graph=graph), synchronous(), **{"rounds": 4, **settings})


def crossed(seed=0):
    """A small federation with edges between its clients."""
    plain = small_federation(seed)
    draw = np.random.default_rng(seed)
    ends = [draw.choice(client.nodes, 6) for client in plain.clients]
    pairs = np.concatenate([np.stack([a, b]) for a, b in zip(ends, ends[1:], strict=False)], 1)
    pairs = np.unique(np.concatenate([pairs, pairs[::-1]], 1), axis=1)
    return replace(plain, cross_edges=pairs)


# ---- the pooled graph


def test_all_clients_together_are_the_graph_they_came_from():
    graph = configured("dataset", "csbm", **SMALL).load(None)
    (split,) = build(seeds=(3,))
    whole, parts = (pool(split, crossing).clients[0] for crossing in (True, False))
    for merged in (whole, parts):
        assert np.array_equal(merged.nodes, np.arange(graph.num_nodes)) and np.array_equal(merged.labels, graph.labels)
        assert (merged.features != graph.features).nnz == 0
        for name in ("train", "val", "test"):
            held = np.concatenate([client.nodes[getattr(client, name)] for client in split.clients])
            assert set(np.flatnonzero(getattr(merged, name))) == set(held)
    assert np.array_equal(whole.edges, graph.edges) and split.cross_edges.size
    assert whole.edges.shape[1] == parts.edges.shape[1] + split.cross_edges.shape[1]


def test_a_shared_node_trains_and_is_scored_nowhere():
    graph = configured("dataset", "csbm", **SMALL).load(None)
    nodes = [np.arange(0, 200), np.arange(100, 300)]
    bare, across = induce(graph, nodes)
    roles = [np.arange(ids.size) % 3 for ids in nodes]
    clients = tuple(replace(c, train=r == 0, val=r == 1, test=r == 2) for c, r in zip(bare, roles, strict=True))
    pooled = pool(Federation("overlap", 0, graph.num_classes, graph.num_features, clients, clients, across, ""), True)
    (merged,), anywhere = pooled.clients, {int(v) for c in clients for v in c.nodes[c.train]}
    assert set(np.flatnonzero(merged.train)) == anywhere and np.array_equal(merged.edges, graph.edges)
    assert not (merged.train & merged.val).any() and not (merged.test & (merged.train | merged.val)).any()
    for client, member in zip(clients, pooled.members, strict=True):
        for name in ("val", "test"):
            assert set(member.nodes[getattr(member, name)]) == set(client.nodes[getattr(client, name)]) - anywhere


def test_what_training_does_not_see_stays_hidden():
    plain = small_federation(0)
    dropped = tuple(replace(c, train=c.train & (np.arange(c.num_nodes) % 2 == 0)) for c in plain.clients)
    pooled = pool(replace(plain, observed=dropped), True)
    assert pooled.observed[0].train.sum() == sum(c.train.sum() for c in dropped) < pooled.clients[0].train.sum()
    clean = pool(plain, True)
    assert clean.observed is clean.clients and clean.num_clients == 1


# ---- training


@pytest.mark.parametrize(("graph", "other"), [("full", Local), ("disjoint", FedAvg)])
def test_one_client_alone_is_local_training(graph, other):
    alone = [federation([make_client(20, seed=seed)], seed=seed) for seed in (0, 1)]
    left = run(graph, alone, model=GCN(4, 2, 0.5))
    right = simulate(alone, other(), synchronous(), rounds=4, model=GCN(4, 2, 0.5))
    assert_same_trips(left, right, exact=True, fewest=8)
    for a, b in zip(left.histories, right.histories, strict=True):
        assert np.array_equal(a.scores["trained"], b.scores["trained"]) and np.array_equal(a.trips, b.trips)


@pytest.mark.parametrize("graph", ["full", "disjoint"])
def test_it_is_the_plain_loop_over_one_large_client(graph):
    federations = [crossed(seed) for seed in (0, 1)]
    result = run(graph, federations, local_epochs=3)
    for s, split in enumerate(federations):
        pooled = pool(split, graph == "full")
        trace = sync.run_sync(pooled, sync.Local(), start(result, s), rounds=4, local_epochs=3)
        for number, expected in enumerate(trace):
            assert_same(result, result.trips[s][number][1], expected.trained[0])
            totals = counts(result.histories[s], "trained", number + 1)
            assert tuple(np.sum(totals, 0)) == expected.trained_counts[0]
    changed = run("disjoint" if graph == "full" else "full", federations, local_epochs=3)
    assert not torch.allclose(changed.trips[0][-1][1], result.trips[0][-1][1])


@pytest.mark.parametrize("metric", ["accuracy", "auc"])
def test_scores_are_kept_client_by_client(metric):
    federations = [replace(crossed(seed), metric=metric, num_classes=2) for seed in (0, 1)]
    for_two = [
        replace(f, clients=(binary := tuple(replace(c, labels=c.labels % 2) for c in f.clients)), observed=binary) for f in federations
    ]
    result = run("full", for_two)
    for s, split in enumerate(for_two):
        theta = result.trips[s][-1][1]
        batch, model = Batch(pool(split, True).clients, torch.float64, "cpu"), GCN(4, 2, 0.0)
        views = result.sim.setting.layout.views(theta[None])
        logits = model.forward(views, batch, model.first(views, batch), no_dropout).logits[0]
        for i, client in enumerate(split.clients):
            one = Batch([client], torch.float64, "cpu")
            expected = METRICS[metric](logits[torch.from_numpy(client.nodes)][None], one)[0]
            assert result.histories[s].scores["trained"][-1, i].tolist() == pytest.approx(expected.tolist())


def test_trips_are_those_of_a_federation_and_nothing_travels():
    left = run("full", participation=0.4, rounds=6, eval_every=4, mixing_at=(2,)).histories[0]
    right = simulate(
        [small_federation(seed) for seed in (0, 1)], FedAvg(), synchronous(), participation=0.4, rounds=6, eval_every=4
    ).histories[0]
    assert np.array_equal(left.trips, right.trips) and np.array_equal(left.version, right.version)
    assert np.array_equal(left.sizes, right.sizes) and left.scores["received"].shape == right.scores["received"].shape
    assert not left.upload.any() and not left.download.any()


# ---- with a server that holds validation and test nodes


def test_the_servers_nodes_stay_with_the_server():
    federation = served(clients=4)
    whole, parts = (pool(federation, crossing) for crossing in (True, False))
    for pooled in (whole, parts):
        (merged,) = pooled.clients
        assert pooled.server is federation.server and merged.train.all() and not (merged.val | merged.test).any()
        assert np.array_equal(merged.nodes, np.flatnonzero(federation.server.train)) and len(pooled.scored) == 4
    inside = sum(client.edges.shape[1] for client in federation.clients)
    assert parts.clients[0].edges.shape[1] == inside < whole.clients[0].edges.shape[1] == inside + federation.cross_edges.shape[1]
    assert not whole.cross_edges.size


def test_it_is_one_client_that_holds_every_training_node():
    together, alone = ([served(clients=clients, seed=seed) for seed in (0, 1)] for clients in (4, 1))
    left = run("full", together, model=GCN(4, 2, 0.5), metrics=["macro_f1"], local_epochs=2)
    right = simulate(alone, Local(), synchronous(), rounds=4, model=GCN(4, 2, 0.5), metrics=["macro_f1"], local_epochs=2)
    assert_same_trips(left, right, exact=True, fewest=8)
    for a, b in zip(left.histories, right.histories, strict=True):
        assert a.trips.tolist() == [0, 4, 8, 12, 16], "rounds are counted as those of four clients"
        for name in ("received", "trained"):
            assert np.array_equal(a.scores[name], np.repeat(b.scores[name], 4, 1), equal_nan=True)
            assert np.array_equal(a.others["macro_f1"][0][name], np.repeat(b.others["macro_f1"][0][name], 4, 1), equal_nan=True)
            assert np.array_equal(a.pooled(name), b.pooled(name), equal_nan=True) and 0 < a.pooled(name)[-1, 1] < 1
            assert np.allclose(a.pooled(name, np.array([5, 1, 2, 3])), b.pooled(name), equal_nan=True)
    parts = run("disjoint", together, model=GCN(4, 2, 0.5), local_epochs=2)
    assert not torch.allclose(parts.trips[0][-1][1], left.trips[0][-1][1])


def test_progress_is_the_servers_validation_score():
    (result,) = [run("full", [served(clients=4)])]
    last = result.sim.points[0][-1]
    assert result.sim.accuracy(last.received[None]) == pytest.approx(result.histories[0].pooled("received")[-1, 0])
