"""FedTAD: reliability, the pseudo graphs, one round against a naive loop, and the limits in which it is FedAvg."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import GCNConv

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedtad import FedTAD, PseudoGraph, _Shared, reliability, return_probabilities, spread
from fgl_bench.engine.batch import adjacency, gcn_operator, mean_operator, plain_operator
from fgl_bench.engine.random_numbers import normal, step_key
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, assert_same_trips, watch
from tests.engine.graphs import federation, from_edges, make_client
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {
    "outer": 2, "generator_steps": 1, "student_steps": 3, "generator_lr": 1e-3, "student_lr": 1e-3, "weight_decay": 0.0, "pseudo_nodes": 11,
    "noise": 5, "neighbours": 3, "walk_length": 5, "ce_weight": 0.7, "diversity_weight": 1.3, "divergence": "kl",
}  # fmt: skip


def method(**changes):
    return FedTAD(**{**KEYS, **changes})


def run(made, seeds=(0, 1), **settings):
    return simulate([small_federation(seed) for seed in seeds], made, synchronous(), **{"rounds": 3, **settings})


def prepared(seeds=(0, 1), **changes):
    """A method ready for its first round, and the run it belongs to."""
    made = method(**changes)
    sim = run(made, seeds, rounds=1).sim
    made.prepare(sim.setting)  # anew
    return made, sim


# ---- reliability


def test_return_probabilities_are_the_diagonals_of_the_walks_powers():
    client = make_client(12, seed=4)
    kept = (client.edges != 3).all(0)
    client = replace(client, edges=client.edges[:, kept])  # node 3 is isolated
    dense = adjacency(client).toarray()
    walk, power = dense / np.maximum(dense.sum(0), 1), np.eye(12)
    for p in range(5):
        power = walk @ power
        np.testing.assert_allclose(return_probabilities(client, 5)[:, p], np.diag(power), atol=1e-12)
    assert return_probabilities(client, 0).shape == (12, 0)


def test_reliability_by_hand():
    """A path 0-1-2 of features e0, e0, e1: cosines without walks are 1 and 0; node 3 is isolated."""
    features = np.array([[1.0, 0], [2, 0], [0, 1], [1, 1]])
    client = from_edges([(0, 1), (1, 2)], [0, 1, 1, 2], train=[0, 1, 2, 3], features=features)
    # (1 + 1) / 2 for node 0; (1 + 1 + 0) / 3 + (1 + 0) / 2 for class 1; 1 / 1 for the isolated node.
    np.testing.assert_allclose(reliability(client, 4, 0), [1, 2 / 3 + 1 / 2, 1, 0])
    np.testing.assert_allclose(reliability(client, 4, 0, block=1), [1, 2 / 3 + 1 / 2, 1, 0])
    # Two steps of the walk return from 0, 1, 2 with probability 1/2, 1, 1/2: descriptors get that third entry.
    x = np.hstack([features, [[0, 0.5], [0, 1], [0, 0.5], [0, 0]]])
    cosine = x @ x.T / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(x, axis=1))
    expected = [(1 + cosine[0, 1]) / 2, (1 + cosine[0, 1] + cosine[1, 2]) / 3 + (1 + cosine[1, 2]) / 2, 1, 0]
    np.testing.assert_allclose(reliability(client, 4, 2), expected)


@pytest.mark.parametrize("everybody", [True, False])
def test_weights_sum_to_one_over_clients_for_every_class_that_somebody_has(everybody):
    made, sim = prepared()
    arrived = torch.ones(2, 5, dtype=torch.bool)
    arrived[0, 0] = everybody
    weights = made.weights(arrived)
    assert (weights >= 0).all() and (weights[~arrived] == 0).all() and (weights[:, -1] == 0).all()
    for s in range(2):
        clients = [c for i, c in enumerate(small_federation(s).clients) if arrived[s, i]]
        held = {int(label) for c in clients for label in c.labels[c.train]}
        expected = torch.tensor([float(c in held) for c in range(3)], dtype=torch.float64)
        torch.testing.assert_close(weights[s].sum(0), expected)


def test_the_only_holder_of_a_class_has_all_its_weight_and_a_class_of_nobody_none():
    clients = [from_edges([(0, 1)], [0, 0], train=[0]), from_edges([(0, 1)], [1, 0], train=[0, 1])]
    made = method()
    simulate([federation(clients, classes=3)], made, synchronous(), rounds=1)
    weights = made.weights(torch.ones(1, 2, dtype=torch.bool))[0]
    assert weights[:, 1].tolist() == [0, 1] and weights[:, 2].tolist() == [0, 0]


# ---- pseudo graphs


def test_pseudo_graphs_join_the_most_similar_rows_both_ways():
    features = torch.randn(2, 9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    graph = PseudoGraph(features, 3)
    for s in range(2):
        cosine = functional.cosine_similarity(features[s][:, None], features[s][None], dim=-1)
        expected = torch.zeros(9, 9, dtype=torch.float64)
        for v in range(9):
            for u in cosine[v].argsort(descending=True)[:3]:
                expected[v, u] = expected[u, v] = 1
        assert torch.equal(graph.adjacency[s], expected) and (expected.diagonal() == 1).all()
        degree = expected.sum(1)
        h = torch.randn(2 * 3, 9, 2, dtype=torch.float64)
        symmetric = expected / (degree[:, None] * degree[None]).sqrt()
        alone = expected - torch.eye(9)
        scale = alone.sum(1).clamp(min=1).rsqrt()
        wanted = {gcn_operator: symmetric, mean_operator: expected / degree[:, None], adjacency: expected}
        for build, matrix in {**wanted, plain_operator: scale[:, None] * alone * scale}.items():
            torch.testing.assert_close((graph.operator(build) @ h)[3 * s + 1], matrix @ h[3 * s + 1])


def test_a_model_that_cannot_run_on_a_pseudo_graph_is_refused():
    class Odd(GCN):
        def first(self, parameters, batch):
            return super().first(parameters, batch) + batch.degree[..., None]

    with pytest.raises(UserError, match="degree"):
        run(method(), model=Odd(hidden=4, layers=2, dropout=0.0))
    with pytest.raises(UserError, match="neighbours"):
        run(method(neighbours=12))


def test_spread_and_its_gradient():
    z, x = (torch.randn(2, 7, width, dtype=torch.float64, generator=torch.Generator().manual_seed(width)) for width in (3, 5))
    x.requires_grad_()
    value = spread(z, x)
    for s in range(2):
        pairs = [(z[s, a] - z[s, b]).square().mean() * (x[s, a] - x[s, b]).abs().mean() for a in range(7) for b in range(7)]
        torch.testing.assert_close(value[s], torch.stack(pairs).mean())
    naive = (z[:, :, None] - z[:, None]).square().mean(-1) * (x[:, :, None] - x[:, None]).abs().mean(-1)
    ours, theirs = (torch.autograd.grad((torch.exp(-v)).sum(), x)[0] for v in (spread(z, x), naive.mean((1, 2))))
    torch.testing.assert_close(ours, theirs)


# ---- one round


def naive_round(made, sim, seed_index, received, trained, arrived, number):
    """The same round with PyG layers, one teacher, one pair of nodes and one class at a time; returns the global model."""
    layout, streams = sim.setting.layout, made.streams[seed_index : seed_index + 1]
    classes, nodes = sim.setting.num_classes, made.pseudo_nodes
    labels = [min(v // max(nodes // classes, 1), classes - 1) for v in range(nodes)]
    phi = torch.from_numpy(np.stack([reliability(c, classes, made.walk_length) for c in sim.setting.batch.clients]))
    phi = phi.view(len(made.streams), -1, classes)[seed_index] * arrived[:, None]
    phi = torch.where(phi.sum(0) > 0, phi / phi.sum(0), 0.0)

    def forward(named, x, edges):
        hidden = x
        for layer in range(2):
            weight, bias = named[f"conv{layer}.weight"], named[f"conv{layer}.bias"]
            conv = GCNConv(*weight.shape).double()
            del conv.lin.weight, conv.bias
            conv.lin.weight, conv.bias = weight.T, bias
            hidden = conv(hidden, edges)
            hidden = hidden if layer else torch.relu(hidden)
        return hidden

    def graph(x):
        cosine = functional.cosine_similarity(x[:, None], x[None], dim=-1)
        joined = {(v, int(u)) for v in range(nodes) for u in cosine[v].topk(made.neighbours).indices}
        return torch.tensor(sorted(joined | {(u, v) for v, u in joined} | {(v, v) for v in range(nodes)})).T

    def divergence(student, teacher):
        if made.divergence == "l1":
            return (student - teacher).abs().mean(-1)
        return functional.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="none").sum(-1)

    def per_class(values):
        return [torch.stack([values[v] for v in range(nodes) if labels[v] == c]).mean() if c in labels else 0.0 for c in range(classes)]

    def weighted(i, values):
        return sum(phi[i, c] * value for c, value in enumerate(per_class(values)))

    teachers = [{name: view[0] for name, view in layout.views(row[None]).items()} for row in trained]
    student = {name: view[0].clone().requires_grad_() for name, view in layout.views(received[:1]).items()}
    generator = {name: view[seed_index].clone().requires_grad_() for name, view in made.generator.views(made.start).items()}
    adam_g = torch.optim.Adam(generator.values(), lr=made.generator_lr)
    adam_w = torch.optim.Adam(student.values(), lr=made.student_lr)

    def invent(z):
        hidden = torch.stack([torch.cat([generator["embedding"][label], row]) for label, row in zip(labels, z, strict=True)])
        for layer in range(3):
            hidden = torch.tanh(hidden @ generator[f"layer{layer}.weight"] + generator[f"layer{layer}.bias"])
        return hidden @ generator["layer3.weight"] + generator["layer3.bias"]

    losses = []
    for turn in range(made.outer):
        z = normal(step_key(streams, torch.tensor(number), turn), nodes, made.noise, torch.float64)[0]
        for _ in range(made.generator_steps):
            x, loss = invent(z), 0.0
            edges = graph(x.detach())
            own = forward({name: value.detach() for name, value in student.items()}, x, edges)
            for i in range(len(teachers)):
                if not arrived[i]:
                    continue
                theirs = forward(teachers[i], x, edges)
                pairs = [(z[a] - z[b]).square().mean() * (x[a] - x[b]).abs().mean() for a in range(nodes) for b in range(nodes)]
                loss = loss + made.ce_weight * weighted(i, functional.cross_entropy(theirs, torch.tensor(labels), reduction="none"))
                loss = loss - weighted(i, divergence(own, theirs)) + made.diversity_weight * torch.exp(-torch.stack(pairs).mean())
            adam_g.zero_grad()
            loss.backward()
            adam_g.step()
            losses.append(loss.detach())
        x = invent(z).detach()
        edges = graph(x)
        for _ in range(made.student_steps):
            adam_w.zero_grad()
            sum(
                weighted(i, divergence(forward(student, x, edges), forward(teachers[i], x, edges))) for i in range(len(teachers))
            ).backward()
            adam_w.step()
    return layout.pack({name: value.detach() for name, value in student.items()}), losses


@pytest.mark.parametrize("changes", [{}, {"divergence": "l1", "generator_steps": 2}, {"pseudo_nodes": 2, "neighbours": 2}])
def test_a_round_equals_the_naive_loop(changes):
    made = method(**changes)
    calls = watch(made, "refine")
    prepare = made.prepare

    def keep_start(setting):
        prepare(setting)
        made.start = made.generators.clone()

    made.prepare = keep_start
    result = run(made, rounds=1)
    (_, received, trained, arrived), refined = calls[0]
    for s in range(2):
        expected, losses = naive_round(made, result.sim, s, received[s], trained[s], arrived[s], 0)
        # Adam's first steps divide a gradient by its own size: rounding is blown up where it is nearly zero.
        torch.testing.assert_close(refined[s], expected.expand_as(refined[s]), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(refined, received, rtol=1e-4, atol=1e-4)


def test_without_turns_it_is_fedavg_bit_for_bit():
    assert_same_trips(run(method(outer=0)), run(FedAvg()), exact=True, fewest=30)


def test_nobodys_upload_changes_nothing():
    made, sim = prepared()
    received = sim.initial.view(2, 5, -1)
    arrived = torch.tensor([[True] * 5, [False] * 5])
    trained = received + 0.1 * torch.randn(received.shape, dtype=received.dtype, generator=torch.Generator().manual_seed(0))
    refined = made.refine(received, received, trained, arrived)
    assert torch.equal(refined[1], received[1]) and not torch.equal(refined[0], received[0])


# ---- whole runs


def test_everybody_receives_the_same_refined_model():
    result = run(method(), rounds=3)
    for number in (1, 2):
        for s in range(2):
            first = result.trips[5 * s][number][0]
            assert all(torch.equal(trips[number][0], first) for trips in result.trips[5 * s : 5 * s + 5])


def test_bytes_are_fedavgs_and_every_clients_reliability_once():
    history = run(method(), rounds=2).histories[0]
    model = 4 * MODEL_SCALARS
    assert history.upload.tolist() == [0, 5 * model + 4 * 5 * 3, 10 * model + 4 * 5 * 3]
    assert history.download.tolist() == [0, 5 * model, 10 * model]


def test_the_gradient_of_a_shared_matrix_is_summed_over_its_models():
    draws = torch.Generator().manual_seed(0)
    values, x = (torch.randn(shape, dtype=torch.float64, generator=draws).requires_grad_() for shape in ((2, 3, 4), (6, 4, 5)))
    assert torch.autograd.gradcheck(lambda values, x: _Shared(values) @ x, (values, x))
    turned = torch.randn(2, 4, 3, dtype=torch.float64, generator=draws).requires_grad_()
    assert torch.autograd.gradcheck(lambda turned: _Shared(turned.mT) @ x.detach(), (turned,))
