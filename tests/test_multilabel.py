"""Several labels a node: the loss, the refusal of methods that need classes, and a run that learns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.local import Local
from fgl_bench.data.federation import build_federations
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.network import node_losses
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from tests.data.graphs import configured
from tests.engine.graphs import federation, make_client
from tests.small_runs import simulate, synchronous
from tests.test_out_of_core import yaml

SMALL = {"num_nodes": 500, "num_edges": 2500, "num_features": 16, "num_classes": 6, "labels_per_node": 2.5, "class_skew": 0.2}


def several(size, seed=0, labels=3):
    client = make_client(size, seed=seed, sparse=False)
    return replace(client, labels=(np.random.default_rng(seed).random((size, labels)) < 0.4).astype(np.float32))


def test_the_loss_is_the_mean_binary_cross_entropy():
    logits = torch.randn(7, 4, dtype=torch.float64)
    labels = (torch.rand(7, 4) < 0.5).double()
    probability = torch.sigmoid(logits)
    by_hand = -(labels * probability.log() + (1 - labels) * (1 - probability).log()).mean(1)
    torch.testing.assert_close(node_losses(logits, labels), by_hand)


def test_a_batch_holds_the_labels_and_pads_with_none():
    clients = [several(9), several(5, seed=1)]
    batch = Batch(clients, torch.float64, "cpu")
    assert batch.labels.shape == (2, 9, 3) and batch.labels.dtype == torch.float64 and not batch.labels[1, 5:].any()
    assert np.array_equal(batch.labels[1, :5].numpy(), clients[1].labels)
    index = batch.train.flatten().nonzero()[:, 0]
    torch.testing.assert_close(batch.training_nodes.labels, batch.labels.flatten(0, 1)[index])
    torch.testing.assert_close(batch.select([1]).labels, batch.labels[1:])


def test_local_training_is_that_of_one_client_by_hand():
    clients = [several(11), several(8, seed=2)]
    run = simulate([federation(clients)], Local(), synchronous(), rounds=3)
    for number, client in enumerate(clients):
        received, _ = run.trips[number][0]
        parameters = {name: value.clone().requires_grad_() for name, value in run.named(received).items()}
        adam = torch.optim.Adam(parameters.values(), lr=0.01, weight_decay=5e-4)
        matrix = torch.eye(client.num_nodes, dtype=torch.float64)
        matrix[client.edges[0], client.edges[1]] = 1
        matrix = matrix / torch.sqrt(matrix.sum(1)[:, None] * matrix.sum(0))
        x, truth = torch.from_numpy(client.features), torch.from_numpy(client.labels).double()
        for _, trained in run.trips[number]:
            hidden = torch.relu(matrix @ x @ parameters["conv0.weight"] + parameters["conv0.bias"])
            logits = matrix @ hidden @ parameters["conv1.weight"] + parameters["conv1.bias"]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[client.train], truth[client.train])
            adam.zero_grad()
            loss.backward()
            adam.step()
            for name, value in run.named(trained).items():
                torch.testing.assert_close(value, parameters[name].detach())


@pytest.mark.parametrize("name", ["fedgta", "fedtad", "fedsage_plus", "majority", "dfed_sst"])
def test_methods_that_read_labels_as_classes_refuse_in_one_line(name):
    method = yaml("algorithm", name)
    with pytest.raises(UserError, match="needs one class a node; dataset=by hand has several labels a node"):
        simulate([federation([several(9), several(5)])], method, synchronous())


@pytest.mark.parametrize("split", ["iid", "dirichlet"])
def test_a_generated_graph_is_split_and_learned(split):
    federations = build_federations(
        configured("dataset", "csbm_yelp", **SMALL),
        configured("split", split, **({"alpha": 1.0} if split == "dirichlet" else {})),
        configured("scenario/sparsity", "none"),
        num_clients=4,
        seeds=[0],
        data_dir=None,
        cache_dir=None,
    )
    given = [client for client in federations[0].clients]
    assert sum(client.num_nodes for client in given) == 500 and all(client.labels.shape[1] == 6 for client in given)
    if split == "iid":
        strata = [np.bincount(client.strata, minlength=6) for client in given]
        assert np.ptp(strata, axis=0).max() <= 1
    run = simulate(
        federations, FedAvg(), synchronous(), rounds=40, model=GCN(hidden=16, layers=2, dropout=0.0), metrics=("micro_f1",), lr=0.03
    )
    scores = run.sim.log.read()
    assert scores.shape[1] == 4
    first, last = (scores[run.sim.points[0][t].trained] for t in (0, -1))
    assert last[:, 3].sum() > 1.2 * first[:, 3].sum(), "micro F1 rises"
