"""FedDEP: the generator's objective by a naive loop, clusters and sampled neighbors by hand, what is sent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from fgl_bench.algorithms._deep_clustering import Draws, deep_clusters, descend, k_means, similarities
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.feddep import DeepSAGE, FedDEP, sampled_mean, with_embeddings
from fgl_bench.data.graph import training_view
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.random_numbers import normal, uniform
from fgl_bench.errors import Unsuited, UserError
from fgl_bench.models.gcn import GCN
from fgl_bench.models.graphsage import GraphSAGE
from tests.algorithms.comparing import TIGHT, assert_same_trips
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {
    "max_neighbors": 3, "prototypes": 2, "width": 4, "sampled": 2, "encoder_layers": 2, "encoder_epochs": 3, "encoder_lr": 0.01,
    "cluster_epochs": [1, 1, 1], "hide": "auto", "hidden_share": 1.0, "latent": 5, "gen_hidden": [6], "gen_dropout": 0.0, "gen_lr": None,
    "gen_weight_decay": 5e-4, "degree_weight": 2.0, "feature_weight": 3.0, "class_weight": 5.0, "initial_missing": 1.0,
    "own_epochs": 1, "shared_epochs": 2,
}  # fmt: skip


def method(**changes):
    return FedDEP(**{**KEYS, **changes})


def run(algorithm, model=None, federations=None, **settings):
    federations = federations or [small_federation(seed) for seed in (0, 1)]
    model = model or GraphSAGE(hidden=8, layers=2, dropout=0.0)
    return simulate(federations, algorithm, synchronous(), model=model, **{"rounds": 2, **settings})


def test_without_generated_embeddings_it_is_fedavg_bit_for_bit():
    assert_same_trips(run(method(max_neighbors=0)), run(FedAvg()), exact=True, fewest=12)


def test_the_clients_see_embeddings_that_do_not_change():
    algorithm = method()
    run(algorithm)
    embeddings = run(algorithm).sim.trainer.batch.features.embeddings
    assert embeddings.shape == (10, algorithm.setting.batch.nodes, 4) and embeddings.any()
    assert not embeddings[~algorithm.setting.batch.valid].any()


def sage(parameters, x, edges, embeddings, prefix="", layers=2):
    """Two convolutions of PyG with concatenated weights ``[in, 2 out]``; ``embeddings`` add a linear function of theirs."""
    for i in range(layers):
        weight = parameters[f"{prefix}conv{i}.weight"]
        conv = SAGEConv(*weight[:, ::2].shape).double()
        near, own = weight.chunk(2, 1)
        x = functional.linear(conv.propagate(edges, x=(x, x), size=None), near.T) + x @ own + parameters[f"{prefix}conv{i}.bias"]
        if embeddings is not None:
            x = x + embeddings @ parameters[f"{prefix}deep{i}.weight"] + parameters[f"{prefix}deep{i}.bias"]
        x = x if i == layers - 1 else torch.relu(x)
    return x


def test_a_layer_adds_a_linear_function_of_the_embedding():
    result = run(method(max_neighbors=2))
    setting, batch = result.sim.setting, result.sim.setting.batch
    assert isinstance(setting.model, DeepSAGE)
    views = setting.layout.views(torch.stack([trips[-1][1] for trips in result.trips]))
    embeddings = torch.randn(10, batch.nodes, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shown = with_embeddings(batch, embeddings)
    logits = setting.model.forward(views, shown, setting.model.first(views, shown), no_dropout).logits
    for i, client in enumerate(batch.clients):
        own, n = {name: view[i] for name, view in views.items()}, client.num_nodes
        expected = sage(own, features(client), torch.from_numpy(client.edges), embeddings[i, :n])
        torch.testing.assert_close(logits[i, :n], expected, **TIGHT)


def features(client):
    dense = client.features.toarray() if hasattr(client.features, "toarray") else client.features
    return torch.from_numpy(np.asarray(dense, dtype=np.float64))


def naive(algorithm, shared, views, i, keys, others):
    """Client i's objective, one node, generated embedding and target after the other."""
    federation_clients, p = algorithm.setting.num_clients, algorithm.max_neighbors
    client = shared.graph.clients[i]
    n, own = client.num_nodes, {name: view[i] for name, view in views.items()}
    x, edges = features(client), torch.from_numpy(client.edges)
    z = sage(own, x, edges, None)
    degree = torch.relu(z @ own["degree.weight"] + own["degree.bias"])[:, 0]
    hidden = z + normal(keys[0], shared.graph.nodes, z.shape[1], torch.float64)[i, :n]
    hidden = torch.relu(hidden @ own["feature0.weight"] + own["feature0.bias"])
    made = torch.tanh(hidden @ own["feature1.weight"] + own["feature1.bias"]).view(n, p, -1)
    visible = shared.visible[i, :n].tolist()
    count = [min(p, int(each + 0.5)) * seen for each, seen in zip(degree.tolist(), visible, strict=True)]
    embeddings = torch.stack([sum(made[v, : count[v]], torch.zeros(4).double()) / p for v in range(n)])
    logits = sage(own, x, edges, embeddings, prefix="classifier.")
    train, missing = np.flatnonzero(client.train).tolist(), shared.missing[i, :n].tolist()

    def near(v, targets):
        return sum(((made[v, j] - torch.stack(targets)).square().mean(1).min() for j in range(count[v])), torch.zeros(()).double())

    total = torch.zeros(()).double()
    for v in train:
        total = total + algorithm.class_weight * functional.cross_entropy(logits[v], torch.tensor(client.labels[v]))
        total = total + algorithm.degree_weight * functional.smooth_l1_loss(degree[v], torch.tensor(float(missing[v])).double())
        if missing[v]:
            targets = [shared.prototypes[i, shared.numbers[i, v, k]] for k in range(min(p, missing[v]))]
            total = total + algorithm.feature_weight * near(v, targets) / p
    total = total / max(1, len(train))
    if not others:
        return total
    draws = uniform(keys[1], shared.graph.nodes, federation_clients * (1 + p)).view(len(keys[1]), -1, federation_clients, 1 + p)[i]
    remote = 0.0
    for j in range(federation_clients):
        for v in range(n if j != i else 0):
            node = int(draws[v, j, 0] * shared.graph.clients[j].num_nodes)
            numbers = [shared.numbers[j, node, int(draws[v, j, 1 + k] * p)] for k in range(p)]
            remote = remote + near(v, [shared.prototypes[j, number] for number in numbers])
    return (total + algorithm.feature_weight * remote / (sum(visible) * p)) / federation_clients


@pytest.mark.parametrize("others", [False, True])
def test_the_generators_objective_and_its_gradient_are_the_naive_loops(others):
    algorithm = method()
    batch = run(algorithm, federations=[small_federation(3, clients=5)]).sim.setting.batch
    rows = list(range(5))
    with torch.no_grad():
        shared = algorithm.share(batch, [rows])
    assert shared.missing.any()
    theta = 0.7 * torch.randn(5, algorithm.layout.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    views = {name: view.clone().requires_grad_() for name, view in algorithm.layout.views(theta).items()}
    counted = Draws(algorithm.streams)
    keys = [counted() for _ in range(4)]
    loss = algorithm.objective(views, shared.graph, rows, shared, Draws(algorithm.streams), others)
    expected = sum(naive(algorithm, shared, views, i, [keys[0], keys[3]], others) for i in rows)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    ours, theirs = (torch.autograd.grad(each, list(views.values()), allow_unused=True) for each in (loss, expected))
    for name, a, b in zip(views, ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")


def test_a_prototype_is_a_mean_and_stands_for_hidden_neighbors(monkeypatch):
    algorithm, embedded = method(max_neighbors=12), []
    batch = run(algorithm).sim.setting.batch
    encode = algorithm.encode
    monkeypatch.setattr(algorithm, "encode", lambda *args: embedded.append(encode(*args)) or embedded[-1])
    with torch.no_grad():
        shared = algorithm.share(batch, [list(range(batch.size))])
    hidden = batch.valid & ~shared.visible
    assert hidden.any() and torch.equal(hidden, batch.val)
    assert 0 < shared.missing.max() < 12  # the last slot is the node's own
    for i, client in enumerate(batch.clients):
        cluster = shared.numbers[i, : client.num_nodes, -1].tolist()
        for v in range(client.num_nodes):
            away = sorted(u for a, u in client.edges.T.tolist() if a == v and hidden[i, u] and not hidden[i, v])
            expected = [cluster[u] for u in away] + [cluster[v]] * (12 - len(away))
            assert shared.missing[i, v] == len(away) and shared.numbers[i, v].tolist() == expected
        for number in set(cluster):
            members = [v for v, each in enumerate(cluster) if each == number]
            torch.testing.assert_close(shared.prototypes[i, number], embedded[0][i, members].mean(0), **TIGHT)


def test_a_mean_is_over_some_neighbors():
    client = max(small_federation(0).clients, key=lambda each: each.edges.shape[1])
    degree = np.bincount(client.edges[0], minlength=client.num_nodes)
    adjacency = {tuple(edge) for edge in client.edges.T.tolist()}
    seen = set()
    for key in range(60):
        matrix = sampled_mean(client, torch.tensor(key), 2)
        np.testing.assert_allclose(np.asarray(matrix.sum(1)).ravel(), degree > 0)
        entries = set(zip(*(part.tolist() for part in matrix.nonzero()), strict=True))
        assert entries <= adjacency and np.array_equal(np.diff(matrix.indptr), np.minimum(degree, 2))
        seen |= entries
    assert degree.max() > 2 and seen == adjacency


def blobs(shift):
    """Two replicas of 30 and 20 rows, in two groups each, which padding must not enter."""
    rows = 0.1 * torch.randn(2, 30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    group = torch.arange(30) % 3 == 0
    rows[:, group] += shift
    valid = torch.ones(2, 30, dtype=torch.bool)
    valid[1, 20:] = False
    rows[1, 20:] = 100.0
    return rows, group, valid


@pytest.mark.parametrize("epochs", [(0, 0, 0), (2, 3, 5)])
def test_separate_groups_are_found_and_replicas_are_independent(epochs):
    rows, group, valid = blobs(3.0)
    streams = torch.tensor([5, 6])
    both = deep_clusters(rows, valid, 2, epochs, Draws(streams))
    for i in (0, 1):
        inside = valid[i]
        assert torch.equal(both[i][inside] == both[i][0], group[inside])
        alone = deep_clusters(rows[i : i + 1], valid[i : i + 1], 2, epochs, Draws(streams[i : i + 1]))
        assert torch.equal(alone[0], both[i])


def test_centers_of_k_means_are_means():
    rows, group, valid = blobs(3.0)
    centers = k_means(rows, valid, 2, Draws(torch.tensor([1, 2])))
    for i in (0, 1):
        means = torch.stack([rows[i, valid[i] & mask].mean(0) for mask in (~group, group)])
        torch.testing.assert_close(centers[i][centers[i][:, 0].argsort()], means, **TIGHT)


def test_similarities_by_hand():
    codes, centers = torch.tensor([[[0.0], [3.0]]]), torch.tensor([[[0.0], [1.0]]])
    torch.testing.assert_close(similarities(codes, centers), torch.tensor([[[2 / 3, 1 / 3], [1 / 3, 2 / 3]]]))


def test_descent_has_momentum_and_mini_batches_of_valid_rows():
    """The loss of a row is x times its number: with batches of 32, replica 0 takes two steps per epoch and replica 1 one."""
    numbers, valid = torch.ones(2, 40).double(), torch.ones(2, 40, dtype=torch.bool)
    valid[1, 10:] = False

    def objective(parameters, index, active):
        return parameters[0] * numbers.gather(1, index)

    (moved,) = descend([torch.zeros(2, 1).double()], objective, valid, 2, 0.5, Draws(torch.tensor([3, 4])))
    steps = [1.0, 1.9, 2.71, 3.439]  # momenta
    torch.testing.assert_close(moved[:, 0], -0.5 * torch.tensor([sum(steps), sum(steps[:2])]).double())


def test_absent_nodes_are_no_targets():
    """In the inductive setting a client has no validation and test nodes while it trains."""
    federation = small_federation(3, clients=5)
    seen = tuple(training_view(client, client.train) for client in federation.clients)
    algorithm = method(hide="train", hidden_share=0.5, shared_epochs=1)
    batch = run(algorithm, federations=[replace(federation, observed=seen)], rounds=1).sim.setting.batch
    rows = list(range(5))
    with torch.no_grad():
        shared = algorithm.share(batch, [rows])
    absent = ~batch.valid
    assert absent[:, : min(client.num_nodes for client in seen)].any()
    key, distance = Draws(algorithm.streams)(), torch.rand(5, batch.nodes, 3, 5, 2, dtype=torch.float64)
    used = shared.visible[..., None].expand(-1, -1, 3).double()
    before = algorithm._remote(distance, used, shared.visible, rows, shared, key)
    other = shared._replace(numbers=torch.where(absent[..., None], 1 - shared.numbers, shared.numbers))
    assert torch.equal(before, algorithm._remote(distance, used, shared.visible, rows, other, key))
    assert not torch.equal(
        before, algorithm._remote(distance, used, shared.visible, rows, shared._replace(numbers=1 - shared.numbers), key)
    )


def test_what_is_sent():
    algorithm = method()
    result = run(algorithm)
    for s, seed in enumerate((0, 1)):
        nodes = sum(client.num_nodes for client in small_federation(seed).clients)
        once = 4 * (5 * 2 * 4 + 3 * nodes)
        model = 4 * 5 * 2 * algorithm.setting.layout.count
        assert (result.histories[s].upload[2], result.histories[s].download[2]) == (model + once, model + 4 * once)
        assert (result.histories[s].upload[0], result.histories[s].download[0]) == (0, 0)


def test_what_it_refuses():
    with pytest.raises(Unsuited, match="needs GraphSAGE"):
        run(method(), model=GCN(8, 2, 0.0))
    with pytest.raises(UserError, match=r"cluster_epochs=\[1, 2\]: give three numbers"):
        run(method(cluster_epochs=[1, 2]))
