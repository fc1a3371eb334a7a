"""The stacked GCN is PyTorch Geometric's, one client at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.gcn import GCN
from tests.engine.graphs import make_client
from tests.models.checking import assert_equals_plain, awkward_clients, random_models
from tests.reference.decoupled import gcn_matrix
from tests.reference.models import initial_parameters

FEATURES, CLASSES, HIDDEN = 5, 3, 4


def stack(parameters, model):
    layout = model.layout(FEATURES, CLASSES)
    return torch.stack([layout.pack(p) for p in parameters]), layout


def run(model, batch, theta, layout, dropout=no_dropout):
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    return parameters, model.forward(parameters, batch, model.first(parameters, batch), dropout)


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
