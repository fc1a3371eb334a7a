"""UniFilter equals a network written for one client from the formulas of its basis."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.local import Local
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout, no_dropout
from fgl_bench.engine.kernels import column_sum
from fgl_bench.errors import UserError
from fgl_bench.models.unifilter import UniFilter, agreeing_edges
from tests.algorithms.comparing import assert_same_trips
from tests.engine.graphs import from_edges, make_client
from tests.models.checking import (
    CLASSES,
    FEATURES,
    assert_equals_network,
    awkward_clients,
    dense_propagation,
    features_of,
    random_models,
)
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {
    "orders": 3, "tau": 0.4, "hidden": 4, "layers": 2, "dropout": 0.0, "input_dropout": 0.0, "basis_dropout": 0.0, "basis": "exact",
    "homophily": "client", "default_homophily": 0.5, "per_feature": False, "filter_lr": None, "filter_weight_decay": None,
}  # fmt: skip


def model(**changes):
    return UniFilter(**{**KEYS, **changes})


def naive_homophily(client, default=0.5):
    pairs = [(u, v) for u, v in client.edges.T if client.train[u] and client.train[v]]
    return sum(client.labels[u] == client.labels[v] for u, v in pairs) / len(pairs) if pairs else default


def naive_basis(client, orders, tau, code=False, default=0.5):
    """b_0 .. b_K of one client, column by column, with Gram-Schmidt against all earlier vectors."""
    matrix, x = dense_propagation(client), features_of(client)
    cosine = max(math.cos(math.pi / 2 * (1 - naive_homophily(client, default))), 1e-3)
    out = torch.zeros(orders + 1, *x.shape, dtype=torch.float64)
    for column in range(x.shape[1]):
        signal = x[:, column]
        out[0, :, column] = signal
        if not signal.any():
            continue
        v, u, power, mixed = [signal / signal.norm()], [signal / signal.norm()], signal, signal
        for k in range(1, orders + 1):
            new = matrix @ v[-1]
            for _ in range(3):
                for old in v:
                    new = new - (old @ new) * old
            v.append(new / new.norm() if new.norm() > 1e-6 else torch.zeros_like(new))
            mean = sum(u) / k
            along = (mean @ (mixed if code else u[-1])) / cosine
            step = max(float(along**2 - ((k - 1) * cosine + 1) / k), 0.0) ** 0.5
            turned = mean + step * v[-1]
            u.append(turned / turned.norm())
            power = matrix @ power
            mixed = tau * power + (1 - tau) * u[-1]
            out[k, :, column] = mixed
    return out


def plain(orders, tau, layers, code=False, residual=False, default=0.5):
    def forward(client, own):
        sums = "k,knf->nf" if own["filter"].dim() == 1 else "kf,knf->nf"
        h = torch.einsum(sums, own["filter"], naive_basis(client, orders, tau, code, default))
        for i in range(layers):
            h = torch.relu(h) if i else h
            weight = own[f"mlp{i}.weight"]
            h = h @ weight + (h if residual and weight.shape[0] == weight.shape[1] else 0)
        return h

    return forward


def test_equal_coefficients_of_all_features_are_those_of_the_orders():
    one, each, client = model(), model(per_feature=True), make_client(9)
    theta = random_models(one.layout(FEATURES, CLASSES), 1)
    views = one.layout(FEATURES, CLASSES).views(theta)
    layout = each.layout(FEATURES, CLASSES)
    row = layout.pack({**{name: view[0] for name, view in views.items()}, "filter": views["filter"][0][:, None].expand(-1, FEATURES)})
    torch.testing.assert_close(logits(each, client, row[None]), logits(one, client, theta))


def test_the_homophily_of_clients_without_an_edge_between_training_nodes():
    clients = [replace(client, train=np.arange(client.num_nodes) < 1) for client in awkward_clients()]
    assert all(agreeing_edges(client) == (0, 0) for client in clients)
    assert_equals_network(model(default_homophily=0.75), plain(3, 0.4, 2, default=0.75), clients)
    client = replace(make_client(12), train=np.arange(12) < 1)
    values = [Batch([client], torch.float64, "cpu").derived(model(default_homophily=h).build).stacked() for h in (0.5, 0.75)]
    assert not torch.allclose(*values)


def test_the_filter_has_rates_of_its_own():
    """FedAvg of one client with full participation is its own training: torch's Adam with two parameter groups."""
    made = model(filter_lr=0.05, filter_weight_decay=0.2)
    run = simulate([small_federation(0)], Local(), synchronous(), rounds=3, model=made, lr=0.01, weight_decay=0.1)
    client = small_federation(0).clients[0]
    own = {name: value.clone().requires_grad_() for name, value in run.named(run.trips[0][0][0]).items()}
    mlp = [value for name, value in own.items() if name != "filter"]
    adam = torch.optim.Adam([{"params": mlp}, {"params": [own["filter"]], "lr": 0.05, "weight_decay": 0.2}], lr=0.01, weight_decay=0.1)
    train = torch.from_numpy(client.train)
    for number in range(3):
        adam.zero_grad()
        out = plain(3, 0.4, 2)(client, own)
        torch.nn.functional.cross_entropy(out[train], torch.from_numpy(client.labels)[train]).backward()
        adam.step()
        found = run.named(run.trips[0][number][1])
        for name, value in own.items():
            torch.testing.assert_close(found[name], value.detach(), rtol=1e-6, atol=1e-8)


def test_rates_are_those_of_the_run_where_none_are_given():
    assert not model().rates
    runs = [
        simulate([small_federation(0)], Local(), synchronous(), rounds=2, model=model(**changes), lr=0.02, weight_decay=0.1)
        for changes in ({}, {"filter_lr": 0.02}, {"filter_weight_decay": 0.1})
    ]
    for other in runs[1:]:
        assert_same_trips(runs[0], other, exact=True, fewest=10)


def logits(made, client, theta, dropout=no_dropout):
    layout, batch = made.layout(FEATURES, CLASSES), Batch([client], torch.float64, "cpu")
    parameters = layout.views(theta)
    return made.forward(parameters, batch, made.first(parameters, batch), dropout).logits[0]


def test_tau_1_is_the_monomial_basis_and_isolated_nodes_have_no_hops():
    made, client = model(tau=1.0), awkward_clients()[-1]
    values = Batch([client], torch.float64, "cpu").derived(made.build).stacked()[0]
    matrix, x = dense_propagation(client), features_of(client)
    for k in range(4):
        torch.testing.assert_close(values[k], torch.linalg.matrix_power(matrix, k) @ x)
    assert not values[1:, 0].any()


def test_with_the_signal_alone_it_is_an_mlp():
    made, client = model(), make_client(9)
    theta = random_models(made.layout(FEATURES, CLASSES), 1)
    views = made.layout(FEATURES, CLASSES).views(theta)
    views["filter"].copy_(torch.tensor([[1.0, 0, 0, 0]]))
    expected = torch.relu(features_of(client) @ views["mlp0.weight"][0]) @ views["mlp1.weight"][0]
    torch.testing.assert_close(logits(made, client, theta), expected)


def test_the_basis_knows_training_labels_only():
    made, client = model(), make_client(12, seed=5)
    other = replace(client, labels=np.where(client.train, client.labels, (client.labels + 1) % CLASSES))
    theta = random_models(made.layout(FEATURES, CLASSES), 1)
    assert torch.equal(logits(made, client, theta), logits(made, other, theta))
    edges = [(0, 1), (1, 2)]
    alike, unlike = (from_edges(edges, labels, train=[0, 1], features=np.eye(3, FEATURES)) for labels in ([0, 0, 1], [0, 1, 1]))
    assert not torch.equal(logits(made, alike, theta), logits(made, unlike, theta))


@pytest.mark.parametrize(
    ("loss", "masks"),
    [("all nodes", "equal"), ("training nodes", "equal"), ("training nodes", "different")],
)
def test_replicas_of_one_client_share_its_basis(loss, masks):
    clients = [make_client(7, seed=i) for i in range(3)]
    if masks == "different":  # a single training node each: no edge joins two of them, and the bases are equal
        clients = [replace(client, train=np.arange(7) == 0, val=np.arange(7) == 1) for client in clients]
    twins = [replace(client, **({"train": client.val} if masks == "different" else {})) for client in clients]
    made, batch = model(), Batch([*clients, *twins], torch.float64, "cpu")
    assert (len(batch.derived(made.build).values), batch.derived(made.build).times) == (3, 2)
    layout = made.layout(FEATURES, CLASSES)
    theta = random_models(layout, 6)

    def results(batch, rows):
        parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta[rows]).items()}
        out = made.forward(parameters, batch, made.first(parameters, batch), no_dropout).logits
        counted = out.square() if loss == "all nodes" else out.square() * batch.train[..., None]
        return [out, *torch.autograd.grad(counted.sum(), list(parameters.values()))]

    whole = results(batch, range(6))
    apart = [results(Batch([client], torch.float64, "cpu"), [i]) for i, client in enumerate([*clients, *twins])]
    odd = results(batch.select([1, 2, 3]), [1, 2, 3])  # neither all clients nor one of each
    for values, *singles in zip(whole, *apart, strict=True):
        torch.testing.assert_close(values, torch.cat(singles))
    for values, others in zip(whole, odd, strict=True):
        torch.testing.assert_close(values[[1, 2, 3]], others)


def test_dropout_is_where_it_is_said_to_be():
    made, client = model(dropout=0.5, input_dropout=0.3, basis_dropout=0.2), make_client(9)
    seen = []

    def spy(x, rate=None):
        seen.append((tuple(x.shape), rate))
        return x

    theta = random_models(made.layout(FEATURES, CLASSES), 1)
    torch.testing.assert_close(logits(made, client, theta, spy), logits(made, client, theta))
    assert seen == [((1, 9, FEATURES), 0.2)] * 4 + [((1, 9, FEATURES), 0.3), ((1, 9, 4), None)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("changes", [{"per_feature": True}, {"basis_dropout": 0.4}, {"per_feature": True, "basis_dropout": 0.4}])
def test_compiled_sums_are_those_in_operations(changes, threads, monkeypatch):
    """Of replicas that share clients, with odd widths; the draws after the filter's are the same ones."""
    pytest.importorskip("numba")
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    made, twins = model(input_dropout=0.3, dropout=0.5, **changes), [make_client(7, seed=1), make_client(11, seed=2)]
    batch, keys = Batch(twins * 2, torch.float64, "cpu"), torch.arange(4) * 1000
    layout = made.layout(FEATURES, CLASSES)
    theta = random_models(layout, 4)

    def results():
        parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
        logits = made.forward(parameters, batch, made.first(parameters, batch), Dropout(0.5, keys)).logits
        training = (logits.square().sum(2) * batch.train).sum()
        return [logits, *torch.autograd.grad(training, list(parameters.values()))]

    assert FEATURES % 4
    compiled = results()
    monkeypatch.setattr(column_sum, "compiles", lambda x: False)
    for found, expected in zip(compiled, results(), strict=True):
        torch.testing.assert_close(found, expected)


def test_initial_parameters():
    made = model(orders=10, hidden=64)
    layout = made.layout(300, 7)
    assert layout.count == 300 * 64 + 64 * 7 + 11
    first, again = (made.init_parameters(layout, torch.Generator().manual_seed(0)) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in layout.shapes)
    assert torch.equal(first["filter"], torch.full((11,), 1 / 11, dtype=torch.float64))
    assert 0.9 * 64**-0.5 < first["mlp0.weight"].abs().max() <= 64**-0.5
    assert 0.9 * 7**-0.5 < first["mlp1.weight"].abs().max() <= 7**-0.5


def test_global_homophily_is_that_of_all_clients_of_a_federation():
    """With as many clients in two federations: each has its own. Chunks keep what the whole batch decided."""
    clients = [make_client(14, seed=seed) for seed in range(6)]
    made, batch = model(homophily="global"), Batch(clients, torch.float64, "cpu")
    batch.per_federation = 3
    shared = made.build.among(clients, 3)
    for start in (0, 3):
        counts = np.sum([agreeing_edges(client) for client in clients[start : start + 3]], axis=0)
        expected = math.cos(math.pi / 2 * (1 - counts[0] / counts[1]))
        assert [made.build.cosine(client) for client in shared[start : start + 3]] == pytest.approx([expected] * 3)
    assert len({made.build.cosine(client) for client in shared}) == 2
    own = batch.derived(model().build).stacked()
    assert not torch.allclose(batch.derived(made.build).stacked(), own)
    torch.testing.assert_close(batch.select([4, 1]).derived(made.build).stacked(), batch.derived(made.build).stacked()[[4, 1]])
    with pytest.raises(UserError, match=r"model\.homophily=client"):
        Batch(clients, torch.float64, "cpu").derived(made.build)


def test_several_labels_a_node_are_refused():
    client = make_client(8)
    client = replace(client, labels=np.eye(3, dtype=np.int64)[client.labels])
    with pytest.raises(UserError, match="one label a node"):
        model().build.among([client], 1)
