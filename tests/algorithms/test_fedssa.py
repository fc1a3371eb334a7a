"""FedSSA: whole rounds against a loop over clients, its limits, what its messages hold, and that its losses fall."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fgl_bench.algorithms._vgae import UndirectedEdges, drawn_pairs
from fgl_bench.algorithms.fedssa import FedSSA, Gaussian
from fgl_bench.algorithms.local import Local
from fgl_bench.engine.random_numbers import mix, normal, step_key
from fgl_bench.errors import UserError
from fgl_bench.models.bernnet import BernNet
from fgl_bench.models.chebnet import ChebNet
from fgl_bench.models.gcn import GCN
from fgl_bench.models.mlp import MLP
from fgl_bench.models.unifilter import UniFilter
from fgl_bench.utils.seeding import derive_seed
from tests.algorithms.comparing import assert_same_trips
from tests.engine.graphs import federation, make_client
from tests.models.test_unifilter import naive_basis
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {
    "semantic": True, "structural": True, "node_clusters": 2, "structural_clusters": 2, "latent": 3, "encoder": "shared",
    "elbo_weight": 1.0, "semantic_weight": 1.0, "structural_weight": 1.0, "l1": 0.01, "l2": 0.02, "points": "drawn", "edges": 1000,
    "floor": 1e-4, "cap": 1000.0, "attempts": 20, "iterations": 10,
}  # fmt: skip
ORDERS, HIDDEN, CLASSES, FEATURES = 2, 4, 3, 6


def method(**changes):
    return FedSSA(**{**KEYS, **changes})


def unifilter(**changes):
    keys = {
        "orders": ORDERS, "tau": 0.5, "hidden": HIDDEN, "layers": 2, "dropout": 0.0, "input_dropout": 0.0, "basis_dropout": 0.0,
        "basis": "exact", "homophily": "client",
        "default_homophily": 0.5, "per_feature": False, "filter_lr": None, "filter_weight_decay": None,
    }  # fmt: skip
    return UniFilter(**{**keys, **changes})


def run(made, seeds=(0, 1), **settings):
    federations = [small_federation(seed) for seed in seeds]
    return simulate(federations, made, synchronous(), **{"rounds": 3, "model": unifilter(), **settings})


# ---- whole rounds


def naive_clusters(gram, count):
    """The partition of few points into at most ``count`` clusters with the least inertia, by trying all."""
    best, found = np.inf, None
    for labels in product(range(count), repeat=len(gram)):
        groups = [[i for i, label in enumerate(labels) if label == c] for c in range(count)]
        inertia = sum(gram[i, i] for i in range(len(gram))) - sum(gram[np.ix_(g, g)].sum() / len(g) for g in groups if g)
        if inertia < best - 1e-9:
            best, found = inertia, [g for g in groups if g]
    return found


def naive_posterior(own, basis, label_basis):
    hidden = torch.relu(
        torch.einsum("k,knf->nf", own["filter"], basis) @ own["mlp0.weight"]
        + torch.einsum("k,kny->ny", own["filter"], label_basis) @ own["label.weight"]
    )
    return (hidden @ own["posterior.weight"] + own["posterior.bias"]).chunk(2, -1)


def naive_gaussian(client, c, mean, log_variance):
    rows = np.flatnonzero(client.train & (client.labels == c))
    return mean[rows].mean(0), log_variance[rows].exp().mean(0) + mean[rows].var(0, correction=0)


def naive_run(made, fed, start, rounds, epochs):
    """One repetition, a client, a class and an edge at a time; returns the trained models of every round."""
    clients = fed.clients
    bases = [naive_basis(c, ORDERS, 0.5) for c in clients]
    marked = [replace(c, features=np.eye(CLASSES)[c.labels] * c.train[:, None]) for c in clients]
    label_bases = [naive_basis(c, ORDERS, 0.5) for c in marked]
    own = [{name: value.clone().requires_grad_() for name, value in start.items()} for _ in clients]
    optimisers = [torch.optim.Adam(o.values(), lr=0.01, weight_decay=5e-4) for o in own]
    owned = [{int(c) for c in client.labels[client.train]} for client in clients]
    gaussians, filters, trace = {}, {}, []
    for number in range(rounds):
        for i, client in enumerate(clients):
            for epoch in range(epochs if client.train.any() else 0):
                theta, n = own[i], client.num_nodes
                logits = torch.relu(torch.einsum("k,knf->nf", theta["filter"], bases[i]) @ theta["mlp0.weight"]) @ theta["mlp1.weight"]
                train = torch.from_numpy(client.train)
                loss = F.cross_entropy(logits[train], torch.from_numpy(client.labels)[train])
                mean, log_variance = naive_posterior(theta, bases[i], label_bases[i])
                loss = loss + 0.0 * (mean.sum() + log_variance.sum())  # no pull is a zero gradient, which decay still acts on
                if made.elbo_weight:
                    key = step_key(torch.tensor([derive_seed(fed.seed, "fedssa", i)]), torch.tensor([number]), epoch)
                    z = mean + (log_variance / 2).exp() * normal(key, n, made.latent, torch.float64)[0]
                    links = UndirectedEdges(
                        torch.tensor([[(u, v) for u, v in client.edges.T if u < v]], dtype=torch.int64).view(1, -1, 2),
                        torch.tensor([client.edges.shape[1] // 2]), torch.tensor([n]), torch.arange(n)[None],
                    )  # fmt: skip
                    if links.count[0]:
                        positive, real, negative, unreal = drawn_pairs(links, made.edges, mix(key + 1))
                        for pairs, counted, sign in ((positive, real, -1), (negative, unreal, 1)):
                            inner = [F.softplus(sign * z[u] @ z[v]) for (u, v), c in zip(pairs[0], counted[0], strict=True) if c]
                            loss = loss + (torch.stack(inner).mean() if inner else 0)
                    loss = loss + (mean**2 + log_variance.exp() - 1 - log_variance).sum() / 2 / n / n
                if made.semantic:
                    for c in owned[i]:
                        if (i, c) in gaussians:
                            (m, v), (goal, spread) = naive_gaussian(client, c, mean, log_variance), gaussians[i, c]
                            v, spread = v.clamp(min=made.floor), spread.clamp(min=made.floor)
                            kl = (v / spread + (goal - m) ** 2 / spread - 1 + torch.log(spread / v)).sum() / 2
                            loss = loss + torch.clamp(kl, max=made.cap)
                if made.structural:
                    a = theta["filter"]
                    loss = loss + made.l1 * a.abs().sum() + made.l2 * a.square().sum()
                    if i in filters:
                        loss = loss + (a - filters[i]).square().sum()
                optimisers[i].zero_grad()
                loss.backward()
                optimisers[i].step()
        trace.append([{name: value.detach().clone() for name, value in o.items()} for o in own])
        if made.semantic:
            sent = {
                (i, c): naive_gaussian(client, c, *naive_posterior(trace[-1][i], bases[i], label_bases[i]))
                for i, client in enumerate(clients)
                for c in owned[i]
            }
            server = step_key(torch.tensor([derive_seed(fed.seed, "fedssa server")]), torch.tensor(number), 0)
            noise = normal(server, len(clients) * CLASSES, made.latent, torch.float64)[0].view(len(clients), CLASSES, -1)
            for c in range(CLASSES):
                holders = [i for i in range(len(clients)) if c in owned[i]]
                if not holders:
                    continue
                shift = 1.0 if made.points == "drawn" else 0.0
                points = torch.stack([sent[i, c][0] + shift * sent[i, c][1].sqrt() * noise[i, c] for i in holders])
                for group in naive_clusters((points @ points.T).numpy(), made.node_clusters):
                    members = [holders[g] for g in group]
                    sizes = torch.tensor([float((clients[i].labels[clients[i].train] == c).sum()) for i in members], dtype=torch.float64)
                    shares = sizes / sizes.sum()
                    goal = sum(share * sent[i, c][0] for share, i in zip(shares, members, strict=True))
                    spread = sum(share * (sent[i, c][1] + (sent[i, c][0] - goal) ** 2) for share, i in zip(shares, members, strict=True))
                    gaussians |= {(i, c): (goal, spread) for i in members}
        if made.structural:
            frames = []
            for i in range(len(clients)):
                energy = torch.stack([trace[-1][i]["filter"][j] * bases[i][j].mean(0) for j in range(ORDERS + 1)], 1)
                left, size, _ = torch.linalg.svd(energy, full_matrices=False)
                left = left[:, size > 1e-5 * size.max()]
                frames.append((left @ left.T).flatten())
            frames = torch.stack(frames)
            for group in naive_clusters((frames @ frames.T).numpy(), made.structural_clusters):
                filters |= {i: torch.stack([trace[-1][j]["filter"] for j in group]).mean(0) for i in group}
    return trace


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"points": "mean", "node_clusters": 3, "structural_clusters": 1},
        {"semantic": False},
        {"structural": False, "edges": 4},
        {"semantic": False, "structural": False},
        {"elbo_weight": 0.0, "cap": 0.5},
    ],
)
def test_rounds_equal_a_loop_over_clients(changes):
    made = method(**changes)
    result = run(made, rounds=3, local_epochs=2)
    for s in range(2):
        fed = small_federation(s)
        start = {name: value.clone() for name, value in result.named(result.sim.initial[5 * s]).items()}
        trace = naive_run(made, fed, start, 3, 2)
        for number, i in product(range(3), range(5)):
            found = result.named(result.trips[5 * s + i][number][1])
            for name, value in trace[number][i].items():
                torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-6, msg=lambda t, n=name: f"{n}: {t}")


# ---- limits


def test_with_nothing_on_it_is_local_training_bit_for_bit():
    made = method(semantic=False, structural=False, elbo_weight=0.0)
    result, local = run(made, local_epochs=2), run(Local(), local_epochs=2)
    assert_same_trips(result, local, exact=True, fewest=30)
    assert result.histories[0].upload.tolist() == local.histories[0].upload.tolist() == [0] * 4


def test_a_detached_encoder_leaves_the_classifier_to_local_training():
    """Its own parameters move all the same, and otherwise than beside a trunk that they share."""
    detached, shared = (run(method(semantic=False, structural=False, encoder=kind)) for kind in ("detached", "shared"))
    local = run(Local())
    for mine, plain in zip(detached.trips, local.trips, strict=True):
        for (_, a), (_, b) in zip(mine, plain, strict=True):
            found = detached.named(a)
            for name, value in local.named(b).items():
                torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(*(each.named(each.trips[0][-1][1])["mlp0.weight"] for each in (shared, local)), atol=1e-3)
    first, last = (detached.named(detached.trips[0][0][i]) for i in (0, 1))
    assert (first["label.weight"] != last["label.weight"]).any()


def test_the_backbone_starts_as_it_would_alone():
    result, local = run(method(), rounds=1), run(Local(), rounds=1)
    for name, value in local.named(local.sim.initial[0]).items():
        assert torch.equal(result.named(result.sim.initial[0])[name], value)


def test_identical_clients_are_aligned_already():
    """And classes with one holder, and a client with no class at all."""
    client = small_federation(0).clients[0]
    made = method(points="mean")
    simulate([federation([client] * 4)], made, synchronous(), rounds=1, model=unifilter())
    own = Gaussian(*(part.clone() for part in made._gaussians))
    assert made.semantic_loss(own).abs().max() < 1e-9
    assert (made._coefficients == made._coefficients[0]).all()
    made.l1 = made.l2 = 0.0
    assert made.structural_loss(made._coefficients).abs().max() < 1e-12


def test_more_orders_than_features_make_one_structural_cluster():
    clients = [make_client(20, seed=seed, features=4, sparse=False) for seed in range(5)]
    made = method(structural_clusters=3)
    result = simulate([federation(clients)], made, synchronous(), rounds=1, model=unifilter(orders=8))
    trained = torch.stack([result.named(trips[0][1])["filter"] for trips in result.trips])
    torch.testing.assert_close(made._coefficients, trained.mean(0).expand(5, -1))
    few = method(structural_clusters=3)
    simulate([federation(clients)], few, synchronous(), rounds=1, model=unifilter(orders=1))
    assert len(few._coefficients.unique(dim=0)) == 3


# ---- messages


def scrambled(fed):
    clients = tuple(replace(c, labels=np.where(c.train, c.labels, (c.labels + 1) % CLASSES)) for c in fed.clients)
    return replace(fed, clients=clients, observed=clients)


@pytest.mark.parametrize("model", [unifilter(dropout=0.5), BernNet(3, 4, 0.5, 0.5), ChebNet(3, 4, 2, 0.5, "filter")])
def test_labels_of_validation_and_test_nodes_are_in_no_message_and_no_model(model):
    runs = []
    for change in (lambda fed: fed, scrambled):
        made = method()
        reports, mixing = [], made.mix
        made.mix = lambda given, arrived, kept=reports, call=mixing: (kept.append(given), call(given, arrived))[1]
        runs.append((simulate([change(small_federation(0))], made, synchronous(), rounds=3, model=model), reports))
    (one, sent), (other, sent_other) = runs
    assert_same_trips(one, other, exact=True, fewest=15)
    for a, b in zip(sent, sent_other, strict=True):
        assert a.keys() == b.keys() == {"mean", "variance", "coefficients", "energy"}
        assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("changes", "up", "down"),
    [
        ({}, lambda classes: classes * 7 + 3 + 3 * FEATURES, lambda classes: classes * 6 + 3),
        ({"semantic": False}, lambda classes: 3 + 3 * FEATURES, lambda classes: 3),
        ({"structural": False}, lambda classes: classes * 7, lambda classes: classes * 6),
        ({"semantic": False, "structural": False}, lambda classes: 0, lambda classes: 0),
    ],
)
def test_bytes_by_hand(changes, up, down):
    """Per class of the client: means and variances of 3 latent variables, and the count upwards; 3 coefficients of 6 features."""
    result = run(method(**changes))
    for s in range(2):
        held = [len({int(c) for c in client.labels[client.train]}) for client in small_federation(s).clients]
        each = [4 * sum(count(classes) for classes in held) for count in (up, down)]
        assert result.histories[s].upload.tolist() == [each[0] * n for n in range(4)]
        assert result.histories[s].download.tolist() == [each[1] * n for n in range(4)]


def test_only_participants_are_clustered_and_get_targets():
    made, states = method(), []
    mixing = made.mix

    def state():
        return [x.clone() for x in (made._coefficients, made._guided, made._gaussians.mean, made._aligned)]

    def keep(given, arrived):
        before = state()
        result = mixing(given, arrived)
        states.append((arrived.flatten(), before, state()))
        return result

    made.mix = keep
    result = run(made, rounds=6, participation=0.4)
    assert any(not arrived.all() for arrived, _, _ in states)
    for arrived, before, after in states:
        for old, new in zip(before, after, strict=True):
            assert torch.equal(old[~arrived], new[~arrived])
        assert (after[1][arrived] == 1).all()
    clients = [client for s in (0, 1) for client in small_federation(s).clients]
    scalars = torch.tensor([len({int(c) for c in client.labels[client.train]}) * 7 + 21 for client in clients])
    for s in range(2):
        sent = sum(int((scalars * arrived)[5 * s : 5 * s + 5].sum()) for arrived, _, _ in states)
        assert result.histories[s].upload[-1] == 4 * sent


# ---- what a run keeps for plots


@pytest.mark.parametrize("semantic", [True, False])
def test_the_final_state_is_made_of_the_last_trained_models(semantic):
    """Also without the semantic component, where clients report no class Gaussians."""
    result = run(method(semantic=semantic))
    kept = result.sim.final_state
    assert {name: tuple(value.shape) for name, value in kept.items()} == {
        "class_means": (2, 5, CLASSES, 3),
        "class_counts": (2, 5, CLASSES),
        "coefficients": (2, 5, ORDERS + 1),
        "targets": (2, 5, ORDERS + 1),
    }
    for s, i in product(range(2), range(5)):
        client, own = small_federation(s).clients[i], result.named(result.trips[5 * s + i][-1][1])
        marked = replace(client, features=np.eye(CLASSES)[client.labels] * client.train[:, None])
        mean, log_variance = naive_posterior(own, naive_basis(client, ORDERS, 0.5), naive_basis(marked, ORDERS, 0.5))
        torch.testing.assert_close(kept["coefficients"][s, i], own["filter"])
        for c in range(CLASSES):
            held = client.train & (client.labels == c)
            assert kept["class_counts"][s, i, c] == held.sum()
            goal = naive_gaussian(client, c, mean, log_variance)[0] if held.any() else torch.zeros(3, dtype=torch.float64)
            torch.testing.assert_close(kept["class_means"][s, i, c], goal, rtol=1e-6, atol=1e-6)


# ---- training


def test_without_the_structural_component_any_backbone_will_do():
    result = run(method(structural=False), model=GCN(hidden=4, layers=2, dropout=0.5))
    layout = result.sim.setting.layout
    assert layout.shapes["label.weight"] == (CLASSES, 4) and layout.shapes["posterior.weight"] == (4, 6)
    assert all(torch.isfinite(row).all() for trips in result.trips for trip in trips for row in trip)


@pytest.mark.parametrize("model", [GCN(hidden=4, layers=2, dropout=0.0), ChebNet(3, 4, 2, 0.0, "layers")])
def test_a_backbone_without_scalar_coefficients_is_refused(model):
    with pytest.raises(UserError, match=r"algorithm\.structural=false") as caught:
        run(method(), model=model)
    assert "\n" not in str(caught.value)


def test_mini_batches_are_refused_for_the_encoder_s_sake():
    with pytest.raises(UserError, match="batch_nodes=2: the method's own network"):
        run(method(structural=False), model=MLP(hidden=4, layers=2, dropout=0.0), batch_nodes=2)
