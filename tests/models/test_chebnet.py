"""ChebNet equals PyTorch Geometric's ChebConv, one client at a time; its one-filter form equals dense Chebyshev polynomials."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch_geometric.nn import ChebConv

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.chebnet import ChebNet
from tests.engine.graphs import make_client, permuted
from tests.models.checking import (
    CLASSES,
    FEATURES,
    assert_equals_network,
    awkward_clients,
    dense_propagation,
    features_of,
    random_models,
)


def pyg(orders, layers):
    def forward(client, own):
        h = features_of(client)
        for i in range(layers):
            weight, bias = own[f"conv{i}.weight"], own[f"conv{i}.bias"]
            conv = ChebConv(weight.shape[0], bias.shape[0], orders, normalization="sym").double()
            del conv.bias
            conv.bias = bias
            for lin, part in zip(conv.lins, weight.chunk(orders, 1), strict=True):
                del lin.weight
                lin.weight = part.T
            h = conv(torch.relu(h) if i else h, torch.from_numpy(client.edges), lambda_max=torch.tensor(2.0, dtype=torch.float64))
        return h

    return forward


def one_filter(client, own):
    matrix = -dense_propagation(client)
    terms, orders = [torch.eye(client.num_nodes, dtype=torch.float64), matrix], own["filter"].shape[0]
    while len(terms) < orders:
        terms.append(2 * matrix @ terms[-1] - terms[-2])
    h = sum(own["filter"][k] * terms[k] for k in range(orders)) @ features_of(client)
    h = torch.relu(h @ own["conv0.weight"] + own["conv0.bias"])
    return h @ own["conv1.weight"] + own["conv1.bias"]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("orders", "layers"), [(1, 2), (2, 1), (2, 2), (3, 2), (5, 3)])
def test_equals_pyg_forward_and_backward(sparse, orders, layers):
    assert_equals_network(ChebNet(orders, 4, layers, 0.0, "layers"), pyg(orders, layers), awkward_clients(sparse))


@pytest.mark.parametrize("orders", [1, 2, 5])
def test_one_filter_equals_dense_polynomials(orders):
    assert_equals_network(ChebNet(orders, 4, 2, 0.0, "filter"), one_filter, awkward_clients())


@pytest.mark.parametrize("form", ["layers", "filter"])
def test_renumbering_nodes_renumbers_the_logits(form):
    client, model, order = make_client(12), ChebNet(3, 4, 2, 0.0, form), np.random.default_rng(0).permutation(12)
    layout = model.layout(FEATURES, CLASSES)
    views = layout.views(random_models(layout, 1))

    def logits(client):
        batch = Batch([client], torch.float64, "cpu")
        return model.forward(views, batch, model.first(views, batch), no_dropout).logits[0]

    torch.testing.assert_close(logits(permuted(client, order)), logits(client)[order])


def test_initial_parameters():
    layers, one = ChebNet(3, 64, 2, 0.5, "layers"), ChebNet(3, 64, 2, 0.5, "filter")
    assert layers.layout(300, 7).count == 3 * (300 * 64 + 64 * 7) + 64 + 7
    assert one.layout(300, 7).count == 300 * 64 + 64 + 64 * 7 + 7 + 3
    assert one.scalar and not layers.scalar
    for model in (layers, one):
        drawn = model.init_parameters(model.layout(300, 7), torch.Generator().manual_seed(0))
        bound = math.sqrt(6 / 364)
        assert 0.9 * bound < drawn["conv0.weight"].abs().max() <= bound
        assert not drawn["conv0.bias"].any()
    assert drawn["filter"].tolist() == [pytest.approx(1 / 3)] * 3


@pytest.mark.parametrize("changes", [{"orders": 0}, {"layers": 0}, {"hidden": 0}])
def test_impossible_sizes_are_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        ChebNet(**{"orders": 3, "hidden": 4, "layers": 2, "dropout": 0.0, "form": "layers", **changes})
