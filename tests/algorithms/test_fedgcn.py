"""FedGCN: with two hops it is FedAvg on the whole graph; rows, edges and bytes of a path by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.utils import k_hop_subgraph

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedgcn import Completed, FedGCN
from fgl_bench.data.federation import induce
from fgl_bench.data.graph import ClientGraph, Federation, Graph, training_view
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.errors import Unsuited
from fgl_bench.models.gcn import GCN
from fgl_bench.models.graphsage import GraphSAGE
from tests.algorithms.comparing import assert_same_trips
from tests.reference import sync
from tests.reference.small import client_graph
from tests.small_runs import simulate, synchronous
from tests.test_equivalence import assert_same, counts, start

CLIENTS = 4


def divided(seed: int, overlapping: bool = False) -> Federation:
    """A random graph over clients with edges between them."""
    draw = np.random.default_rng(seed)
    whole = client_graph(draw, 60, 0, num_classes=3, num_features=6, chance=0.15, isolated=2, sparse=seed == 1)
    graph = Graph("small", whole.features, whole.edges, whole.labels, 3)
    nodes = [np.sort(part) for part in np.array_split(draw.permutation(60), CLIENTS)]
    if overlapping:
        nodes[0] = np.union1d(nodes[0], nodes[1][:5])
    bare, crossing = induce(graph, nodes)
    masked = [replace(c, **{name: getattr(whole, name)[c.nodes] for name in ("train", "val", "test")}) for c in bare]
    assert crossing.shape[1] > 20
    return Federation("small", seed, 3, 6, tuple(masked), tuple(masked), crossing, "by hand")


def whole_graphs(federation: Federation) -> Federation:
    """The same clients, each with the whole graph but with the masks of its own nodes."""
    draw = np.random.default_rng(federation.seed)
    whole = client_graph(draw, 60, 0, num_classes=3, num_features=6, chance=0.15, isolated=2)
    clients = []
    for client in federation.clients:
        masks = {name: np.zeros(60, dtype=bool) for name in ("train", "val", "test")}
        for name, mask in masks.items():
            mask[client.nodes] = getattr(client, name)
        clients.append(replace(whole, **masks))
    return replace(federation, clients=tuple(clients), observed=tuple(clients), cross_edges=np.zeros((2, 0), np.int64))


@pytest.mark.parametrize("overlapping", [False, True])
def test_with_two_hops_every_client_trains_on_the_whole_graph(overlapping):
    federations = [divided(seed, overlapping) for seed in (0, 1)]
    run = simulate(federations, FedGCN(2, "sums"), synchronous(), rounds=4, local_epochs=2)
    for s, federation in enumerate(federations):
        trace = sync.run_sync(whole_graphs(federation), sync.FedAvg(), start(run, s * CLIENTS), rounds=4, local_epochs=2)
        for number, expected in enumerate(trace):
            for i in range(CLIENTS):
                assert_same(run, run.trips[s * CLIENTS + i][number][1], expected.trained[i], 1e-5)  # sums are in single precision
            assert counts(run.histories[s], "received", number + 1) == expected.received_counts


def test_with_one_hop_later_convolutions_stay_inside_the_client():
    federation = divided(0)
    method = FedGCN(1, "sums")
    run = simulate([federation], method, synchronous(), rounds=1)
    whole = whole_graphs(federation).clients[0]
    s, x = gcn_operator(whole).toarray(), np.asarray(whole.features, dtype=float)
    for i, client in enumerate(federation.clients):
        p = {name: value.numpy() for name, value in run.named(run.sim.initial[i]).items()}
        hidden = np.maximum((s @ x)[client.nodes] @ p["conv0.weight"] + p["conv0.bias"], 0)
        expected = s[np.ix_(client.nodes, client.nodes)] @ hidden @ p["conv1.weight"] + p["conv1.bias"]
        batch = run.sim.trainer.batch.select([i])
        views = run.sim.setting.layout.views(run.sim.initial[i : i + 1])
        logits = method.predict(run.sim.setting.model, views, batch, run.sim.setting.model.first(views, batch))
        np.testing.assert_allclose(logits[0, : client.num_nodes], expected, atol=1e-6)


@pytest.mark.parametrize("hops", [1, 2])
def test_single_nodes_make_the_subgraphs_of_the_authors(hops):
    federation = divided(0)
    whole = whole_graphs(federation).clients[0]
    for client, completed in zip(federation.clients, FedGCN(hops, "nodes").federate(federation).clients, strict=True):
        subset, edges, place, _ = k_hop_subgraph(torch.from_numpy(client.nodes), hops, torch.from_numpy(whole.edges), relabel_nodes=True)
        np.testing.assert_array_equal(completed.nodes, subset)
        np.testing.assert_array_equal(completed.edges, edges)
        np.testing.assert_array_equal(completed.features, whole.features[subset])
        np.testing.assert_array_equal(np.flatnonzero(completed.present), place.sort().values)
        for name in ("train", "val", "test"):
            np.testing.assert_array_equal(completed.nodes[getattr(completed, name)], client.nodes[getattr(client, name)])


def path() -> Federation:
    """Nodes 0 and 1 with one client, node 2 with another; edges 0-1 and 1-2."""
    one, none, no_edges = np.ones(2, dtype=bool), np.zeros(2, dtype=bool), np.zeros((2, 0), np.int64)
    features = np.array([[3.0, 0.0], [0.0, 6.0], [6.0, 6.0]], np.float32)
    left = ClientGraph(np.arange(2), features[:2], np.array([[0, 1], [1, 0]]), np.array([0, 1]), one, none, none)
    right = ClientGraph(np.array([2]), features[2:], no_edges, np.array([1]), none[:1], one[:1], none[:1])
    return Federation("path", 0, 2, 2, (left, right), (left, right), np.array([[1, 2], [2, 1]]), "by hand")


def completed(hops: int, exchange: str) -> list[Completed]:
    return [client for client in FedGCN(hops, exchange).federate(path()).clients if isinstance(client, Completed)]


def test_the_sums_of_a_path():
    (left, right), root = completed(2, "sums"), 6**-0.5
    rows = [[3 / 2, 6 * root], [3 * root + 6 * root, 6 / 3 + 6 * root], [6 / 2, 6 * root + 6 / 2]]
    np.testing.assert_allclose(left.features, rows, rtol=1e-6)
    np.testing.assert_allclose(right.features, rows[1:], rtol=1e-6)
    assert left.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]] and right.edges.tolist() == [[0, 1], [1, 0]]
    assert left.labels.tolist() == [0, 1, -1] and right.present.tolist() == [False, True]


@pytest.mark.parametrize(
    ("hops", "exchange", "sent", "obtained"),
    [
        (1, "sums", (9, 6), (6, 3)),  # a row is two features and a node id or a degree
        (2, "sums", (9, 6), (9, 6)),
        (1, "nodes", (3, 3), (3, 3)),
        (2, "nodes", (6, 3), (3, 8)),  # with the two ends of an edge
    ],
)
def test_the_scalars_of_a_path(hops, exchange, sent, obtained):
    clients = completed(hops, exchange)
    assert tuple(client.sent for client in clients) == sent
    assert tuple(client.obtained for client in clients) == obtained
    model = GCN(hidden=4, layers=2, dropout=0.0)
    history = simulate([path()], FedGCN(hops, exchange), synchronous(), rounds=2, model=model).histories[0]
    plain = simulate([path()], FedAvg(), synchronous(), rounds=2, model=model).histories[0]
    assert (history.upload - plain.upload).tolist() == [0, *[4 * sum(sent)] * 2]
    assert (history.download - plain.download).tolist() == [0, *[4 * sum(obtained)] * 2]


def test_in_the_inductive_setting_only_training_nodes_are_summed():
    federation = divided(0)
    seen = tuple(training_view(client, client.train) for client in federation.clients)
    federated = FedGCN(2, "sums").federate(replace(federation, observed=seen))
    training = np.concatenate([client.nodes[client.train] for client in federation.clients])
    for clean, observed in zip(federated.clients, federated.observed, strict=True):
        np.testing.assert_array_equal(clean.nodes, observed.nodes)
        assert np.isin(observed.nodes[observed.edges], training).all()
        assert not observed.features[~np.isin(observed.nodes, training)].any()
        assert observed.edges.shape[1] < clean.edges.shape[1] and observed.sent < clean.sent


def test_without_hops_it_is_fedavg():
    federations = [divided(seed) for seed in (0, 1)]
    plain = simulate(federations, FedAvg(), synchronous())
    assert_same_trips(simulate(federations, FedGCN(0, "sums"), synchronous()), plain, exact=True, fewest=20)


def test_remote_nodes_are_in_no_statistic():
    federation = FedGCN(2, "nodes").federate(divided(0))
    assert Batch(federation.clients, torch.float64, "cpu").num_nodes.tolist() == [15] * CLIENTS


def test_sums_need_a_gcn():
    with pytest.raises(Unsuited, match="exchange=nodes"):
        FedGCN(1, "sums").backbone(GraphSAGE(4, 2, 0.0))
