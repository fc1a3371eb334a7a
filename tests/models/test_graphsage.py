"""The stacked GraphSAGE is PyTorch Geometric's, one client at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.graphsage import GraphSAGE
from tests.engine.graphs import make_client, permuted

FEATURES, CLASSES, HIDDEN = 5, 3, 4


def stack(model, count):
    layout = model.layout(FEATURES, CLASSES)
    return torch.stack([layout.pack(model.init_parameters(layout, torch.Generator().manual_seed(i))) for i in range(count)]), layout


def run(model, batch, theta, layout, dropout=no_dropout):
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    return parameters, model.forward(parameters, batch, model.first(parameters, batch), dropout)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("sparse", [True, False])
def test_equals_pyg_forward_and_backward(layers, sparse):
    # A lone node, an edgeless client, a larger one, and one whose node 0 is isolated.
    clients = [make_client(1, sparse=sparse), make_client(6, edges=0.0, sparse=sparse), make_client(9, sparse=sparse)]
    last = make_client(11, seed=3, sparse=sparse)
    clients.append(last.__class__(**{**last.__dict__, "edges": last.edges[:, (last.edges != 0).all(0)]}))
    model, batch = GraphSAGE(HIDDEN, layers, 0.0), Batch(clients, torch.float64, "cpu")
    theta, layout = stack(model, len(clients))
    parameters, output = run(model, batch, theta, layout)
    weights = torch.rand(output.logits.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = torch.autograd.grad((output.logits.log_softmax(-1) * weights * batch.valid[..., None]).sum(), list(parameters.values()))
    flat = layout.collect(dict(zip(parameters, gradients, strict=True)))

    widths = [FEATURES, *[HIDDEN] * (layers - 1), CLASSES]
    for i, client in enumerate(clients):
        n = client.num_nodes
        convs = [SAGEConv(wide, narrow).double() for wide, narrow in zip(widths, widths[1:], strict=False)]
        for layer, conv in enumerate(convs):
            near, own = layout.view(theta, f"conv{layer}.weight")[i].chunk(2, -1)
            conv.lin_l.weight.data, conv.lin_r.weight.data = near.T.clone(), own.T.clone()
            conv.lin_l.bias.data = layout.view(theta, f"conv{layer}.bias")[i].clone()
        x = torch.from_numpy(client.features.toarray() if sparse else client.features)
        for conv in convs[:-1]:
            x = torch.relu(conv(x, torch.from_numpy(client.edges)))
        logits = convs[-1](x, torch.from_numpy(client.edges))
        torch.testing.assert_close(output.logits[i, :n], logits, rtol=1e-10, atol=1e-12)
        (logits.log_softmax(-1) * weights[i, :n]).sum().backward()
        for layer, conv in enumerate(convs):
            wanted = torch.cat([conv.lin_l.weight.grad.T, conv.lin_r.weight.grad.T], -1)
            torch.testing.assert_close(layout.view(flat, f"conv{layer}.weight")[i], wanted, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(layout.view(flat, f"conv{layer}.bias")[i], conv.lin_l.bias.grad, rtol=1e-10, atol=1e-12)


def test_renumbering_nodes_renumbers_the_logits():
    client, model = make_client(12), GraphSAGE(HIDDEN, 2, 0.0)
    theta, layout = stack(model, 1)
    order = np.random.default_rng(0).permutation(12)
    plain, moved = (run(model, Batch([c], torch.float64, "cpu"), theta, layout)[1].logits[0] for c in (client, permuted(client, order)))
    torch.testing.assert_close(moved, plain[order], rtol=1e-12, atol=1e-12)


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
