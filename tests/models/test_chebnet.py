"""ChebNet equals PyTorch Geometric's ChebConv, one client at a time; its one-filter form equals dense Chebyshev polynomials."""

from __future__ import annotations

import math

import pytest
import torch
from torch_geometric.nn import ChebConv

from fgl_bench.models.chebnet import ChebNet
from tests.models.checking import (
    dense_propagation,
    features_of,
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
