"""FedGNN (adapted): who is matched with whom, the expanded convolution against PyG, and where it is FedAvg."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedgnn import FedGNN, matching
from fgl_bench.data.graph import Federation, training_view
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.gcn import GCN
from fgl_bench.utils.seeding import generator
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.leaks import assert_hidden_labels_do_not_matter
from tests.engine.graphs import federation, from_edges
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {"matches": 3, "expand_every": 1, "ldp": False, "clip": 0.1, "epsilon": 1.0}


def method(**changes):
    return FedGNN(**{**KEYS, **changes})


def overlapping(seed=0, clients=5) -> Federation:
    """Clients that sample most of a sparse graph with many twins."""
    draw = generator(seed, "overlapping")
    size = 24
    pairs = {(int(min(u, v)), int(max(u, v))) for u, v in draw.integers(0, size, (40, 2)) if u != v} | {(0, v) for v in range(20, size)}
    features, labels = draw.normal(size=(size, 6)), draw.integers(0, 3, size)
    graphs = []
    for _ in range(clients):
        nodes = np.sort(draw.choice(size, 18, replace=False))
        place = {int(node): i for i, node in enumerate(nodes)}
        local = [(place[u], place[v]) for u, v in pairs if u in place and v in place]
        train = draw.choice(18, 6, replace=False)
        client = from_edges(local, labels[nodes], train, features[nodes].astype(np.float32))
        graphs.append(replace(client, nodes=nodes))
    return federation(graphs, seed=seed)


def run(made, federations=None, **settings):
    federations = federations or [overlapping(seed) for seed in (0, 1)]
    return simulate(federations, made, synchronous(), **{"rounds": 4, **settings})


# ---- matching


def test_matching_by_hand():
    """Hub 7 has the leaves 1, 2 here, 3, 4 and 1 there; 5 and 6 are joined; 8 has no neighbour."""
    here = replace(from_edges([(0, 2), (1, 2)], [0] * 4), nodes=np.array([1, 2, 7, 8]))
    there = replace(from_edges([(0, 5), (1, 5), (2, 5), (3, 4)], [0] * 6), nodes=np.array([1, 3, 4, 5, 6, 7]))
    dense = matching([here, there], 6, 10).toarray()
    heard = {(int(r), int(c)) for r, c in zip(*np.nonzero(dense), strict=True)}
    # Rows of `there` begin at 6. Node 1 never hears itself; the hubs' own keys differ.
    assert heard == {(0, 7), (0, 8), (1, 6), (1, 7), (1, 8), (6, 1), (7, 0), (7, 1), (8, 0), (8, 1)}
    capped = matching([here, there], 6, 1)
    assert capped.toarray().sum(1).max() == 1 and (capped.toarray() <= dense).all()
    assert matching([here, there], 6, 0).nnz == 0


# ---- FedAvg


def test_on_disjoint_clients_it_is_fedavg_bit_for_bit():
    federations = [small_federation(seed) for seed in (0, 1)]
    settings = {"model": GCN(4, 2, 0.5, "linear"), "local_epochs": 2}
    assert_same_trips(run(method(), federations, **settings), run(FedAvg(), federations, **settings), exact=True, fewest=40)


def test_without_matches_it_is_fedavg_bit_for_bit_also_where_clients_overlap():
    assert_same_trips(run(method(matches=0)), run(FedAvg()), exact=True, fewest=40)
    ours, plain = run(method()), run(FedAvg())
    assert not torch.allclose(ours.trips[0][-1][1], plain.trips[0][-1][1], atol=1e-3)


# ---- the expanded convolution


@pytest.mark.parametrize("model", [GCN(4, 2, 0.0), GCN(4, 3, 0.0), GCN(4, 2, 0.0, "linear")])
def test_the_expanded_network_equals_pyg_on_the_expanded_graph(model):
    """In the middle of a run: received nodes are appended to the client's graph with the embeddings of the received model."""
    made = method()
    result = run(made, model=model, rounds=2)
    s, sim = 1, result.sim
    clients, batch = overlapping(1).clients, sim.trainer.batch
    w = result.trips[5 * s][1][0]
    assert all(torch.equal(result.trips[5 * s + i][1][0], w) for i in range(5))
    w, trained = result.named(w), torch.stack([trips[1][1] for trips in result.trips])
    heard = matching(clients, batch.nodes, 3).toarray()
    assert heard.sum() >= 10

    def conv(named, i, wide, narrow):
        layer = GCNConv(wide, narrow).double()
        del layer.lin.weight, layer.bias
        layer.lin.weight, layer.bias = named[f"conv{i}.weight"].T, named[f"conv{i}.bias"]
        return layer

    tensors = [(torch.from_numpy(c.features).double(), torch.from_numpy(c.edges)) for c in clients]
    embeddings = [torch.relu(conv(w, 0, 6, 4)(x, edges)) for x, edges in tensors]
    degree = [np.bincount(c.edges[0], minlength=18) + 1 + heard[i * 18 : i * 18 + 18].sum(1) for i, c in enumerate(clients)]

    views = sim.setting.layout.views(trained)
    made._exchange(torch.stack([trips[1][0] for trips in result.trips]), None)
    output = sim.trainer.model.forward(views, batch, sim.trainer.model.first(views, batch), no_dropout).logits
    for i, client in enumerate(clients):
        named, (x, edges) = result.named(trained[5 * s + i]), tensors[i]
        hidden = torch.relu(conv(named, 0, 6, 4)(x, edges)) @ named["conv1.weight"]
        out = torch.zeros_like(hidden)
        for v in range(18):
            near = [v, *client.edges[1][client.edges[0] == v]]
            out[v] = sum(hidden[u] / np.sqrt(degree[i][v] * degree[i][u]) for u in near)
            for column in np.flatnonzero(heard[i * 18 + v]):
                j, u = divmod(int(column), 18)
                out[v] += embeddings[j][u] @ named["conv1.weight"] / np.sqrt(degree[i][v] * degree[j][u])
        out = out + named["conv1.bias"]
        if model.layers == 3:
            out = conv(named, 2, 4, 3)(torch.relu(out), edges)
        if model.head == "linear":
            out = torch.relu(out) @ named["head.weight"] + named["head.bias"]
        torch.testing.assert_close(output[5 * s + i], out, **TIGHT)


def test_embeddings_are_exchanged_every_so_many_rounds():
    seen, made = [], method(expand_every=2)
    exchange = made._exchange
    made._exchange = lambda models, seeds: seen.append(made.number) or exchange(models, seeds)
    history = run(made, rounds=5).histories[0]
    assert seen == [0, 2, 4], "rounds done before an exchange"
    sent, got, model = 90 * 5, made.got[0] * 4, 5 * MODEL_SCALARS
    assert history.upload.tolist() == [4 * (n * model + -(-n // 2) * sent) for n in range(6)]
    assert history.download.tolist() == [4 * (n * model + -(-n // 2) * got) for n in range(6)]
    assert made.got[0] > 0


def test_embeddings_of_nodes_that_are_not_there_do_not_travel():
    fed = overlapping()
    observed = tuple(training_view(client, client.train) for client in fed.clients)
    made = method()
    run(made, [replace(fed, observed=observed)])
    assert made.sent == [sum(int(client.train.sum()) for client in fed.clients)]


# ---- privacy


def test_perturbed_gradients_are_clipped_with_laplace_noise_of_the_stated_scale():
    made = method(ldp=True, clip=0.1, epsilon=0.5)
    result = run(made, rounds=1)
    batch, layout = Batch(result.sim.trainer.batch.clients, torch.float64, "cpu"), result.sim.setting.layout
    draws = []
    for epoch in range(200):
        gradient = torch.full((10, layout.size), 5.0, dtype=torch.float64)
        step = type("Step", (), {"batch": batch, "layout": layout, "epoch": epoch})()
        draws.append(layout.view(made.correct_gradient(step, gradient), "conv0.weight").flatten(1) - 0.1)
    noise = torch.cat(draws, 1)
    scale = 2 * 0.01 * 0.1 / (np.sqrt(6) * 0.5)
    assert noise.abs().mean().item() == pytest.approx(scale, rel=0.03) and noise.mean().abs().item() < 0.05 * scale
    assert (noise.abs() > scale).double().mean().item() == pytest.approx(np.exp(-1), abs=0.02)
    assert gradient[:, layout.count :].eq(5.0).all(), "padding stays"


# ---- runs


def test_hidden_labels_do_not_matter():
    assert_hidden_labels_do_not_matter(method, synchronous, [overlapping(seed) for seed in (0, 1)])
