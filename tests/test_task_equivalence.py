"""Graph classification and link prediction take the steps of a plain loop over PyTorch Geometric models, in double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.minibatch import Epochs
from fgl_bench.models.gat import GAT
from fgl_bench.models.gcn import GCN
from fgl_bench.models.gin_plain import GINPlain
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.tasks.graph import GraphClassification
from fgl_bench.tasks.link import LinkPrediction
from tests.reference import tasks as plain
from tests.small_graph_sets import of_graphs, of_pairs
from tests.small_runs import simulate, synchronous

SAME = {"rtol": 1e-7, "atol": 1e-7}  # Adam blows up rounding where a gradient is nearly zero
BACKBONES = {
    "gin_plain": (GINPlain(4, 2, 0.0, "linear"), plain.gin),
    "gcn": (GCN(4, 2, 0.0), plain.gcn),
    "graphsage": (GraphSAGE([6, 4], 3, 0.0), plain.sage),
    "gat": (GAT(4, 2, 0.0, "v1", 2, 1, "relu", 0.0, "conv"), plain.gat),
}


def assert_same_steps(run, federation, row, build, batches, rounds, shared=""):
    """Compare every client's trained models with those of the plain loop; ``build(parameters)`` makes a PyG model."""
    clients = federation.num_clients
    initial = run.named(run.sim.initial[row])
    models = [build(initial) for _ in range(clients)]
    sizes = [int(client.train.sum()) for client in federation.clients]
    trained = plain.fedavg(models, batches, sizes, rounds=rounds, lr=0.01, weight_decay=5e-4, shared=shared)
    for number in range(rounds):
        for i in range(clients):
            rebuilt = build(run.named(run.trips[row + i][number][1]))
            for mine, theirs in zip(rebuilt.parameters(), trained[number][i], strict=True):
                torch.testing.assert_close(mine.detach(), theirs, **SAME)


@pytest.mark.parametrize("head", ["mlp", "linear"])
@pytest.mark.parametrize("readout", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", BACKBONES)
def test_graphs(name, readout, head):
    backbone, conv = BACKBONES[name]
    model = GraphClassification(readout, 4, head).network(backbone)
    federations = [of_graphs(seed) for seed in (0, 1)]
    run = simulate(federations, FedAvg(), synchronous(), rounds=3, model=model)
    for s, federation in enumerate(federations):
        own = [
            [graph for graph, train in zip(plain.graphs_of(client), client.train, strict=True) if train] for client in federation.clients
        ]
        batches = [lambda graphs=graphs: plain.loader(graphs, len(graphs)) for graphs in own]
        assert_same_steps(run, federation, 3 * s, lambda p: plain.GraphClassifier(p, conv, readout), batches, 3)


@pytest.mark.parametrize("readout", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", BACKBONES)
def test_mini_batches_of_graphs(monkeypatch, name, readout):
    backbone, conv = BACKBONES[name]
    monkeypatch.setattr(
        Epochs, "order", lambda self, batch, key: batch.train.logical_not().int().argsort(dim=1, stable=True)[:, : self.longest]
    )
    model = GraphClassification(readout, 4, "mlp").network(backbone)
    federation = of_graphs()
    run = simulate([federation], FedAvg(), synchronous(), rounds=3, model=model, batch_nodes=3)
    own = [[graph for graph, train in zip(plain.graphs_of(client), client.train, strict=True) if train] for client in federation.clients]
    batches = [lambda graphs=graphs: plain.loader(graphs, 3) for graphs in own]
    assert_same_steps(run, federation, 0, lambda p: plain.GraphClassifier(p, conv, readout), batches, 3)


def test_clients_with_their_own_input_and_output_layers_share_the_convolutions():
    federation = replace(of_graphs(), personal_ends=True)
    model = GraphClassification("sum", 4, "mlp").network(GINPlain(4, 2, 0.0, "linear"))
    run = simulate([federation], FedAvg(), synchronous(), rounds=3, model=model)
    own = [[graph for graph, train in zip(plain.graphs_of(client), client.train, strict=True) if train] for client in federation.clients]
    batches = [lambda graphs=graphs: plain.loader(graphs, len(graphs)) for graphs in own]
    assert_same_steps(run, federation, 0, lambda p: plain.GraphClassifier(p, plain.gin, "sum"), batches, 3, "encoder.convs")
    assert run.sim.setting.layout.count == 4 * (4 * 4 + 4)


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
@pytest.mark.parametrize("name", BACKBONES)
def test_links(name, decoder):
    backbone, conv = BACKBONES[name]
    model = LinkPrediction(decoder, 4, None, "auc").network(backbone)
    federations = [of_pairs(seed) for seed in (0, 1)]
    run = simulate(federations, FedAvg(), synchronous(), rounds=3, model=model)
    for s, federation in enumerate(federations):
        batches = [lambda client=client: [plain.pairs_of(client)] if client.train.any() else [] for client in federation.clients]
        assert_same_steps(run, federation, 3 * s, lambda p: plain.LinkPredictor(p, conv), batches, 3)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_mini_batches_of_links_are_the_whole_where_all_fit(size):
    model = LinkPrediction("mlp", 4, None, "auc").network(GCN(4, 2, 0.0))
    whole = simulate([of_pairs()], FedAvg(), synchronous(), rounds=2, model=model)
    parts = simulate([of_pairs()], FedAvg(), synchronous(), rounds=2, model=model, batch_nodes=size)
    same = all(
        torch.allclose(a[1], b[1], atol=1e-9) for x, y in zip(whole.trips, parts.trips, strict=True) for a, b in zip(x, y, strict=True)
    )
    assert same == (size == 100)
    assert np.isfinite(parts.histories[0].scores["received"]).all()
