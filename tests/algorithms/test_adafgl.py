"""AdaFGL: FedAvg, then heads against a naive client; where the stages meet; what travels."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fgl_bench.algorithms.adafgl import HEADS, AdaFGL, Heads, Knowledge, Options, head_layout, propagated_accuracy, similar_pairs
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.batch import Batch, adjacency, gcn_operator
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.engine.graphs import from_edges
from tests.reference.small import small_federation
from tests.small_runs import counts, simulate, synchronous

KEYS = {
    "federated_rounds": 2, "label_steps": 4, "label_alpha": 0.5, "hops": 2, "blend": 0.5, "beta": 0.3, "width": 4, "head_dropout": 0.0,
    "softmaxes": "single", "attention": "softmax", "fusion": "soft", "max_nodes": 100,
}  # fmt: skip


def method(**changes):
    return AdaFGL(**{**KEYS, **changes})


def run(made, seeds=(0, 1), **settings):
    return simulate([small_federation(seed) for seed in seeds], made, synchronous(), **{"rounds": 5, **settings})


def personal(**changes):
    """A method in its personal stage, its run, and random heads ``[10, P']``."""
    made = method(**changes)
    result = run(made, rounds=3)
    layout = result.sim.trainer.layout
    theta = torch.randn(10, layout.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 2
    return made, result, layout, theta


# ---- two stages


def test_the_first_stage_is_fedavg_bit_for_bit():
    model = GCN(4, 2, 0.5)
    ours, plain = run(method(federated_rounds=3), model=model, rounds=5), run(FedAvg(), model=model, rounds=3)
    assert_same_trips(ours, plain, exact=True, fewest=30)
    for s in (0, 1):
        for number in range(4):
            for kind in ("received", "trained"):
                assert counts(ours.histories[s], kind, number) == counts(plain.histories[s], kind, number)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_in_the_second_stage_clients_keep_to_themselves(participation):
    """A client begins where it ended, and does not notice when another one's labels change."""
    result = run(method(federated_rounds=1), participation=participation, rounds=6)
    for trips in result.trips:
        later = [pair for pair in trips if len(pair[0]) == result.sim.trainer.layout.size]
        assert all(torch.equal(after[0], before[1]) for before, after in zip(later, later[1:], strict=False))
    honest = small_federation(0)
    first = replace(honest.clients[0], labels=(honest.clients[0].labels + 1) % 3)
    other = replace(honest, clients=(first, *honest.clients[1:]), observed=(first, *honest.clients[1:]))
    a, b = (simulate([f], method(federated_rounds=0), synchronous(), rounds=4) for f in (honest, other))
    for i in range(5):
        assert all(torch.equal(x[1], y[1]) for x, y in zip(a.trips[i], b.trips[i], strict=True)) == (i > 0)


def test_where_the_stages_meet_the_received_model_is_the_global_one():
    ours, plain = run(method(), rounds=4), run(FedAvg(), rounds=2)
    for s in (0, 1):
        assert counts(ours.histories[s], "received", 2) == counts(plain.histories[s], "received", 2)
        assert counts(ours.histories[s], "trained", 2) == counts(plain.histories[s], "trained", 2)
        # From then on a client receives what it trained.
        for number in (3, 4):
            assert counts(ours.histories[s], "received", number) == counts(ours.histories[s], "trained", number)
        assert ours.histories[s].trips.tolist() == [0, 5, 10, 15, 20]


def test_bytes_are_fedavgs_and_the_last_model():
    model = 4 * 5 * MODEL_SCALARS
    history = run(method()).histories[0]
    assert history.upload.tolist() == [0, model, 2 * model, 2 * model, 2 * model, 2 * model]
    assert history.download.tolist() == [0, model, 2 * model, 3 * model, 3 * model, 3 * model]
    history = run(method(federated_rounds=0)).histories[0]
    assert not history.upload.any() and not history.download.any()


# ---- homophily


def test_label_propagation_by_hand():
    """A path 0-1-2 of classes 0, 0, 1 and an isolated node: sources 0 and 3, held out 1 and 2."""
    client = from_edges([(0, 1), (1, 2)], [0, 0, 1, 1], train=[0, 1, 2, 3])
    batch, source = Batch([client], torch.float64, "cpu"), torch.tensor([[True, False, False, True]])
    truth = np.eye(2)[[0, 0, 1, 1]] * np.array([1, 0, 0, 1])[:, None]
    labels = start = np.where(truth.sum(1, keepdims=True) > 0, truth, 0.5)
    for _ in range(3):
        labels = 0.5 * gcn_operator(client) @ labels + 0.5 * start + truth
    assert (labels[1] > labels[1, ::-1])[0] and (labels[2] > labels[2, ::-1])[0], "class 0 spreads along the path"
    assert propagated_accuracy(batch, source, 2, 3, 0.5).tolist() == [0.5]
    assert propagated_accuracy(batch, torch.ones(1, 4, dtype=torch.bool), 2, 3, 0.5).tolist() == [0.5], "nobody held out"
    easy = replace(client, labels=np.array([0, 0, 0, 1]))
    assert propagated_accuracy(Batch([easy], torch.float64, "cpu"), source, 2, 3, 0.5).tolist() == [1.0]


def test_confidence_uses_training_labels_only_and_lies_in_the_unit_interval():
    made = method()
    run(made, rounds=1)
    found = made.confidence()
    assert ((found >= 0) & (found <= 1)).all() and found[4] == 0.5 and len(found.unique()) > 2


# ---- the heads


SHARED = {"homo": "homo.slope", "raw": "hetero.slope", "smooth": "hetero.slope", "message": "message.slope"}


def test_initial_heads_are_each_drawn_by_their_own_inputs():
    """Uniform within sqrt(12 / (in + out)) of the whole layer: 300 raw features, 900 of the powers."""
    layout = head_layout(2, 50, 300, 7)
    heads = Heads(None, torch.zeros(1), Options(2, 0.5, 0.0, 50, "double", "softmax", "soft"), 0.5)
    made = heads.init_parameters(layout, torch.Generator().manual_seed(0))
    for found, fans in (
        (made["input.weight"][:, :50], 350),
        (made["input.weight"][:, 50:], 950),
        (made["raw0.weight"], 100),
        (made["homo0.weight"], 57),
    ):
        bound = (12 / fans) ** 0.5
        assert 0.98 * bound < found.abs().max() <= bound
    assert not any(made[name].any() for name in layout.shapes if name.endswith("bias"))
    assert all(made[name].tolist() == [0.25] for name in set(SHARED.values()))


def scaled(raw):
    mean, most = raw.mean(), raw.max()
    out = torch.empty_like(raw)
    for u in range(len(raw)):
        for v in range(len(raw)):
            r = raw[u, v] - mean
            out[u, v] = r / (most - mean) if r > 0 else -(r + mean) / mean
    return out + torch.eye(len(raw), dtype=raw.dtype)


def naive(made, network, named, client, w):
    """Outputs of the four heads and the answer of one client, from the formulas."""
    n, options = client.num_nodes, made.heads.options
    alone = Batch([client], torch.float64, "cpu")
    p = torch.softmax(network.forward(made.frozen, alone, network.first(made.frozen, alone), no_dropout).logits[0], -1)
    seen = p.softmax(-1) if made.softmaxes == "double" else p
    similar = (functional.cosine_similarity(seen[:, None], seen[None], dim=-1) > 0.999).double() * (1 - torch.eye(n).double())
    graph = made.blend * torch.from_numpy(adjacency(client).toarray()) + (1 - made.blend) * similar + torch.eye(n).double()
    spread = torch.diag(graph.sum(1) ** -0.5) @ graph @ torch.diag(graph.sum(1) ** -0.5)
    x = torch.from_numpy(client.features.toarray() if hasattr(client.features, "toarray") else client.features).double()
    xs, h = [x], options.width
    for _ in range(made.hops):
        xs.append(spread @ xs[-1])
    blocks = named["input.weight"][:, h:].unflatten(1, (made.hops + 1, 3, h))
    bias, z = named["input.bias"].view(4, h), {}
    starts = {"raw": x @ named["input.weight"][:, :h] + bias[0]}
    for i, name in enumerate(("homo", "smooth", "message")):
        stacked = torch.cat([blocks[:, k, i] for k in range(made.hops + 1)])
        starts[name] = torch.cat(xs, 1) @ stacked + bias[i + 1]
    for name in HEADS:
        z[name] = starts[name]
        for layer in range(1 if name == "homo" else 2):
            weight, bias = named[f"{name}{layer}.weight"], named[f"{name}{layer}.bias"]
            z[name] = functional.prelu(z[name], named[SHARED[name]]) @ weight + bias
    message = z["message"]
    compared = message if made.attention == "raw" else message.softmax(1)
    cosines = functional.cosine_similarity(compared[:, None], compared[None], dim=-1)
    if made.attention == "softmax":
        cosines = cosines * (1 - torch.eye(n).double())
    pairs = scaled(made.beta * similar + (1 - made.beta) * cosines) if n > 1 else torch.ones(1, 1).double()
    slope = named["message.slope"]
    towards, away = (torch.softmax(functional.prelu(sign * pairs, slope) @ message, 1) for sign in (1, -1))
    z["message"] = (towards - away + message) / 2
    homo = (z["homo"].softmax(1) + seen) / 2
    others = (z["raw"].softmax(1) + z["smooth"].softmax(1) + z["message"].softmax(1)) / 3
    return p, z, w * homo + (1 - w) * others


@pytest.mark.parametrize(
    "changes",
    [{}, {"attention": "raw"}, {"beta": 0.0, "softmaxes": "double", "hops": 0}, {"blend": 0.05, "beta": 1.0}],
)
def test_heads_and_loss_equal_the_formulas_client_by_client(changes):
    made, result, layout, theta = personal(**changes)
    sim, network = result.sim, GCN(4, 2, 0.0)
    batch = sim.trainer.batch
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    heads = sim.trainer.model
    output = heads.forward(parameters, batch, heads.first(parameters, batch), no_dropout)
    step = type("Step", (), {"batch": batch, "output": output})()
    gradients = torch.autograd.grad(made.local_loss(step), list(parameters.values()), allow_unused=True, materialize_grads=True)
    assert sim.trainer.lr and len(batch.clients) == 10
    for i, client in enumerate(batch.clients):
        n = client.num_nodes
        made.frozen = sim.setting.layout.views(heads.network.models[i : i + 1])
        named = {name: view[i].detach().requires_grad_() for name, view in layout.views(theta).items()}
        p, z, answer = naive(made, network, named, client, heads.confidence[i])
        torch.testing.assert_close(output.hidden[i, :n], torch.cat([z[name] for name in HEADS], 1), rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(output.logits[i, :n].exp(), answer, rtol=1e-8, atol=1e-9)
        if not client.train.any():
            continue
        train, labels = torch.from_numpy(client.train), torch.from_numpy(client.labels)
        loss = (z["homo"] - p).square().mean() + sum(functional.cross_entropy(z[name][train], labels[train]) for name in HEADS)
        wanted = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
        for gradient, other in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient[i], other, rtol=1e-6, atol=1e-8)


def test_the_attention_over_three_nodes_by_hand():
    """H = ln 3 e_1, ln 3 e_1, ln 3 e_2 of two classes: softmax H is (3/4, 1/4) twice and (1/4, 3/4), whose cosines are 1, 0.6 and 0.6.

    R0 = [0 1 .6; 1 0 .6; .6 .6 0] has the mean m = 4.4 / 9 = 22/45 and the maximum 1, so that R is (1 - m) / (1 - m) = 1 for the first
    pair and (.6 - m) / (1 - m) = 5/23 for the others, and 1 on the diagonal.
    """
    h = math.log(3) * torch.tensor([[[1.0, 0], [1, 0], [0, 1]]], dtype=torch.float64)
    made, result, layout, theta = personal(beta=0.0)
    heads = Heads(result.sim.trainer.model.network, torch.zeros(1), made.heads.options, 0.0)
    batch = Batch([from_edges([(0, 1)], [0, 0, 1])], torch.float64, "cpu")
    blank = torch.zeros(1, 3, 2, dtype=torch.float64)
    known = Knowledge(blank, blank, None, None, None, torch.zeros(1, 1, 1, dtype=torch.float64))
    heads._known[batch] = known
    heads._layers = lambda parameters, name, out, dropout: out
    first = torch.cat([blank, blank, blank, h], 2)
    output = heads.forward({"message.slope": torch.full((1, 1), 0.5, dtype=torch.float64)}, batch, first, no_dropout)
    found = output.hidden.unflatten(2, (4, 2))[0, :, 3]
    r = torch.tensor([[1, 1, 5 / 23], [1, 1, 5 / 23], [5 / 23, 5 / 23, 1]], dtype=torch.float64)
    towards, away = (r @ h[0]).softmax(1), (-0.5 * r @ h[0]).softmax(1)
    torch.testing.assert_close(found, (towards - away + h[0]) / 2, rtol=1e-12, atol=1e-12)


def test_the_hard_switch_takes_one_side():
    made, result, layout, theta = personal(fusion="hard")
    heads, batch = result.sim.trainer.model, result.sim.trainer.batch
    heads.confidence = torch.tensor([0.95, 0.89] * 5, dtype=torch.float64)
    heads._known.clear()
    views = layout.views(theta)
    output = heads.forward(views, batch, heads.first(views, batch), no_dropout)
    z = output.hidden.unflatten(2, (4, -1)).softmax(-1)
    for i in range(10):
        homo = (z[i, :, 0] + heads.knowledge(batch).prediction[i]) / 2  # softmaxes=single: P as it is
        torch.testing.assert_close(output.logits[i].exp(), homo if i % 2 == 0 else z[i, :, 1:].mean(1), **TIGHT)


def test_what_is_alike():
    rows = torch.ones(3, 4, 2, dtype=torch.float64)
    valid = torch.tensor([[True] * 4, [True] + [False] * 3, [False] * 4])
    assert similar_pairs(rows, valid).sum((1, 2)).tolist() == [12, 0, 0]


@pytest.mark.parametrize("hops", [0, 1, 3])
def test_the_smoothed_features_are_made_where_nodes_outnumber_them(hops, monkeypatch):
    """Both ways to the first layer agree, in gradients too."""
    answers = []
    for few in (True, False):
        made, result, layout, theta = personal(hops=hops)
        heads, batch = result.sim.trainer.model, result.sim.trainer.batch
        heads._known.clear()
        with monkeypatch.context() as patch:
            patch.setattr("fgl_bench.algorithms.adafgl.SMOOTHED_BELOW", 1000.0 if few else 0.0)
            known = heads.knowledge(batch)
        assert (known.smoothed is None) == (known.operator is not None) == (not few or hops == 0)
        theta = theta.requires_grad_()
        first = heads.first(layout.views(theta), batch)
        answers.append((first.detach(), *torch.autograd.grad(first.square().sum(), theta)))
    torch.testing.assert_close(*answers, **TIGHT)


# ---- runs


def test_nobody_is_late_for_the_personal_stage():
    """A deadline is for uploads; here is none, so that slow clients go on from what they trained."""
    scenario = synchronous(slow_fraction=0.5, deadline=1.5)
    result = simulate([small_federation(0)], method(federated_rounds=1), scenario, rounds=4)
    for trips in result.trips:
        for before, after in zip(trips[1:], trips[2:], strict=False):
            assert torch.equal(after[0], before[1])
