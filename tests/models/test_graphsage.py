"""The stacked GraphSAGE is PyTorch Geometric's, one client at a time."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.graphsage import GraphSAGE
from tests.engine.graphs import make_client

FEATURES, CLASSES, HIDDEN = 5, 3, 4


def stack(model, count):
    layout = model.layout(FEATURES, CLASSES)
    return torch.stack([layout.pack(model.init_parameters(layout, torch.Generator().manual_seed(i))) for i in range(count)]), layout


def run(model, batch, theta, layout, dropout=no_dropout):
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    return parameters, model.forward(parameters, batch, model.first(parameters, batch), dropout)


def test_an_isolated_node_answers_from_its_own_features():
    client, model = make_client(6, edges=0.0), GraphSAGE(HIDDEN, 1, 0.0)
    theta, layout = stack(model, 1)
    own = layout.view(theta, "conv0.weight")[0][:, CLASSES:]
    expected = torch.from_numpy(client.features.toarray()) @ own + layout.view(theta, "conv0.bias")[0]
    torch.testing.assert_close(run(model, Batch([client], torch.float64, "cpu"), theta, layout)[1].logits[0], expected)


def test_dropout_acts_on_hidden_units_after_the_activation():
    client, model, seen = make_client(9), GraphSAGE(HIDDEN, 3, 0.5), []
    theta, layout = stack(model, 1)

    def spy(x):
        seen.append(x)
        return x

    output = run(model, Batch([client], torch.float64, "cpu"), theta, layout, spy)[1]
    assert [tuple(x.shape) for x in seen] == [(1, 9, HIDDEN)] * 2
    assert all((x >= 0).all() for x in seen) and output.hidden is seen[-1]


def test_parameters_and_their_initial_range():
    model = GraphSAGE(64, 2, 0.5)
    layout = model.layout(1433, 7)
    assert layout.count == 2 * 1433 * 64 + 64 + 2 * 64 * 7 + 7
    for name, value in model.init_parameters(layout, torch.Generator().manual_seed(0)).items():
        bound = (1433 if name.startswith("conv0") else 64) ** -0.5
        assert value.abs().max() <= bound and value.std().item() == pytest.approx(bound / 3**0.5, rel=0.4)
