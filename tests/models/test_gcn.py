"""The stacked GCN is PyTorch Geometric's, one client at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.gcn import GCN
from tests.engine.graphs import make_client, permuted
from tests.models.checking import assert_equals_plain, awkward_clients, random_models
from tests.reference.decoupled import gcn_matrix
from tests.reference.models import GCN as PlainGCN
from tests.reference.models import initial_parameters, write_parameters

FEATURES, CLASSES, HIDDEN = 5, 3, 4


def stack(parameters, model):
    layout = model.layout(FEATURES, CLASSES)
    return torch.stack([layout.pack(p) for p in parameters]), layout


def run(model, batch, theta, layout, dropout=no_dropout):
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    return parameters, model.forward(parameters, batch, model.first(parameters, batch), dropout)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("sparse", [True, False])
def test_equals_pyg_forward_and_backward(layers, sparse):
    # A lone node, an edgeless client, and larger ones; node 0 of the last is isolated.
    clients = [make_client(1, sparse=sparse), make_client(6, edges=0.0, sparse=sparse), make_client(5, sparse=sparse)]
    last = make_client(11, seed=3, sparse=sparse)
    kept = (last.edges != 0).all(0)
    clients.append(last.__class__(**{**last.__dict__, "edges": last.edges[:, kept]}))
    model, batch = GCN(HIDDEN, layers, 0.0), Batch(clients, torch.float64, "cpu")
    named = [initial_parameters(FEATURES, CLASSES, hidden=HIDDEN, layers=layers, seed=i) for i in range(len(clients))]
    theta, layout = stack(named, model)
    parameters, output = run(model, batch, theta, layout)
    weights = torch.rand(output.logits.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = torch.autograd.grad((output.logits.log_softmax(-1) * weights * batch.valid[..., None]).sum(), list(parameters.values()))
    flat = layout.collect(dict(zip(parameters, gradients, strict=True)))

    for i, client in enumerate(clients):
        n, plain = client.num_nodes, PlainGCN([FEATURES, *[HIDDEN] * (layers - 1), CLASSES]).double().eval()
        write_parameters(plain, named[i])
        x = torch.from_numpy(client.features.toarray() if sparse else client.features)
        logits = plain(x, torch.from_numpy(client.edges))
        torch.testing.assert_close(output.logits[i, :n], logits, rtol=1e-10, atol=1e-12)
        (logits.log_softmax(-1) * weights[i, :n]).sum().backward()
        for layer, conv in enumerate(plain.convs):
            for name, wanted in ((f"conv{layer}.weight", conv.lin.weight.grad.T), (f"conv{layer}.bias", conv.bias.grad)):
                torch.testing.assert_close(layout.view(flat, name)[i], wanted, rtol=1e-10, atol=1e-12)


def test_each_replica_meets_its_own_parameters_only():
    clients, model = [make_client(7, seed=i) for i in range(3)], GCN(HIDDEN, 2, 0.0)
    theta, layout = stack([initial_parameters(FEATURES, CLASSES, hidden=HIDDEN, seed=i) for i in range(3)], model)
    batch = Batch(clients, torch.float64, "cpu")
    before = run(model, batch, theta, layout)[1].logits
    theta[1] += 1
    after = run(model, batch, theta, layout)[1].logits
    assert torch.equal(before[[0, 2]], after[[0, 2]]) and not torch.equal(before[1], after[1])


def test_renumbering_nodes_renumbers_the_logits():
    client, model = make_client(12), GCN(HIDDEN, 2, 0.0)
    theta, layout = stack([initial_parameters(FEATURES, CLASSES, hidden=HIDDEN)], model)
    order = np.random.default_rng(0).permutation(12)
    plain, moved = (run(model, Batch([c], torch.float64, "cpu"), theta, layout)[1].logits[0] for c in (client, permuted(client, order)))
    torch.testing.assert_close(moved, plain[order], rtol=1e-12, atol=1e-12)


def test_dropout_acts_on_hidden_units_after_the_activation_and_never_on_logits():
    client, model = make_client(9), GCN(HIDDEN, 3, 0.5)
    theta, layout = stack([initial_parameters(FEATURES, CLASSES, hidden=HIDDEN, layers=3)], model)
    seen = []

    def spy(x):
        seen.append(x)
        return x

    batch = Batch([client], torch.float64, "cpu")
    parameters, output = run(model, batch, theta, layout, spy)
    assert [tuple(x.shape) for x in seen] == [(1, 9, HIDDEN)] * 2
    assert all((x >= 0).all() for x in seen)
    assert torch.equal(seen[0], functional.relu(model.first(parameters, batch)))
    assert output.hidden is seen[-1]


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_parameters_are_those_of_the_paper(layers):
    # D = f h + h + (layers - 2)(h h + h) + h Y + Y; Cora's 92,231 with 2 layers of 64.
    assert GCN(64, 2, 0.5).layout(1433, 7).count == 92_231
    wide = [FEATURES, *[HIDDEN] * (layers - 1)]
    expected = sum(a * b + b for a, b in zip(wide, [*wide[1:], CLASSES], strict=True))
    layout = GCN(HIDDEN, layers, 0.5).layout(FEATURES, CLASSES)
    assert layout.count == expected
    assert layout.inputs == ("conv0.weight",)


def test_initial_parameters_are_glorot_uniform_with_zero_biases():
    model = GCN(64, 2, 0.5)
    layout = model.layout(300, 7)
    first, again, other = (model.init_parameters(layout, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    for name, shape in layout.shapes.items():
        assert torch.equal(first[name], again[name])
        if name.endswith("bias"):
            assert not first[name].any()
            continue
        bound = math.sqrt(6 / sum(shape))
        assert not torch.equal(first[name], other[name])
        assert 0.9 * bound < first[name].abs().max() <= bound
        assert first[name].std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_linear_head_follows_convolutions_that_are_all_hidden(layers):
    # FED-PUB's network: convolution, ReLU, dropout, convolution, ReLU, dropout, linear layer.
    clients, model = awkward_clients(), GCN(HIDDEN, layers, 0.0, "linear")

    def plain(parameters, x, edges):
        matrix = gcn_matrix(edges, len(x))
        for layer in range(layers):
            x = functional.relu(matrix @ (x @ parameters[f"conv{layer}.weight"]) + parameters[f"conv{layer}.bias"])
        return x @ parameters["head.weight"] + parameters["head.bias"]

    assert_equals_plain(model, plain, clients)
    layout, seen = model.layout(FEATURES, CLASSES), []
    output = run(model, Batch(clients, torch.float64, "cpu"), random_models(layout, 4), layout, lambda x: seen.append(x) or x)[1]
    assert len(seen) == layers and output.hidden is seen[-1], "every convolution is followed by dropout"


def test_the_linear_head_is_drawn_as_a_linear_layer():
    model = GCN(64, 2, 0.5, "linear")
    layout = model.layout(300, 7)
    assert layout.shapes["conv1.weight"] == (64, 64) and layout.shapes["head.weight"] == (64, 7)
    initial = model.init_parameters(layout, torch.Generator().manual_seed(0))
    assert 0.9 / 8 < initial["head.weight"].abs().max() <= 1 / 8 and 0 < initial["head.bias"].abs().max() <= 1 / 8
    assert initial["conv0.weight"].abs().max() > 1 / 8 and not initial["conv1.bias"].any()
