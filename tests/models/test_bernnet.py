"""BernNet equals the definition with dense matrices; its filter is never negative."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.engine.batch import Batch, plain_operator
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.bernnet import BernNet, bernstein_in_chebyshev
from tests.engine.graphs import make_client
from tests.models.checking import (
    CLASSES,
    FEATURES,
    dense_propagation,
    features_of,
    random_models,
)


def plain(client, own):
    orders = own["filter"].shape[0] - 1
    unit = torch.eye(client.num_nodes, dtype=torch.float64)
    laplacian = unit - dense_propagation(client)
    h = torch.relu(features_of(client) @ own["lin0.weight"] + own["lin0.bias"]) @ own["lin1.weight"] + own["lin1.bias"]
    power = torch.linalg.matrix_power
    terms = [comb(orders, k) / 2**orders * power(2 * unit - laplacian, orders - k) @ power(laplacian, k) for k in range(orders + 1)]
    return sum(torch.relu(own["filter"][k]) * terms[k] for k in range(orders + 1)) @ h


def run(model, client, theta, dropout=no_dropout):
    batch, views = Batch([client], torch.float64, "cpu"), model.layout(FEATURES, CLASSES).views(theta)
    parameters = {name: view.detach().requires_grad_() for name, view in views.items()}
    return parameters, model.forward(parameters, batch, model.first(parameters, batch), dropout)


def test_at_the_start_the_filter_is_the_identity():
    model, client = BernNet(10, 4, 0.0, 0.0), make_client(12)
    layout = model.layout(FEATURES, CLASSES)
    own = model.init_parameters(layout, torch.Generator().manual_seed(0))
    assert own["filter"].tolist() == [1.0] * 11
    expected = torch.relu(features_of(client) @ own["lin0.weight"] + own["lin0.bias"]) @ own["lin1.weight"] + own["lin1.bias"]
    torch.testing.assert_close(run(model, client, layout.pack(own)[None])[1].logits[0], expected)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=11))
@settings(max_examples=60, deadline=None)
def test_the_response_lies_between_0_and_the_largest_coefficient(coefficients):
    weights = np.maximum(coefficients, 0)
    response = np.polynomial.chebyshev.chebval(np.linspace(-1, 1, 101), weights @ bernstein_in_chebyshev(len(weights) - 1))
    assert response.min() >= -1e-9
    assert response.max() <= weights.max() + 1e-9


def test_the_last_coefficient_alone_passes_high_frequencies():
    client, model = make_client(9, seed=4), BernNet(4, 4, 0.0, 0.0)
    basis = model.label_basis(Batch([client], torch.float64, "cpu"), torch.eye(9, dtype=torch.float64)[None])[0]
    laplacian = torch.eye(9, dtype=torch.float64) - torch.from_numpy(plain_operator(client).toarray())
    torch.testing.assert_close(basis[4], torch.linalg.matrix_power(laplacian, 4) / 16)


def test_a_negative_coefficient_is_dead():
    model, client = BernNet(3, 4, 0.0, 0.0), make_client(9)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    layout.views(theta)["filter"].copy_(torch.tensor([[0.5, -0.1, 0.25, -3.0]]))
    parameters, output = run(model, client, theta)
    assert model.weights(parameters).tolist() == [[0.5, 0.0, 0.25, 0.0]]
    gradient = torch.autograd.grad(output.logits.square().sum(), parameters["filter"])[0][0]
    assert gradient[1] == gradient[3] == 0 and (gradient[[0, 2]] != 0).all()


def test_dropout_is_where_it_is_said_to_be():
    model, client, seen = BernNet(2, 4, 0.5, 0.3), make_client(9), []

    def spy(x, rate=None):
        seen.append((tuple(x.shape), rate))
        return x

    run(model, client, random_models(model.layout(FEATURES, CLASSES), 1), spy)
    assert seen == [((1, 9, 4), None), ((1, 9, CLASSES), 0.3)]


def test_parameters_and_refusals():
    assert BernNet(10, 64, 0.5, 0.5).layout(1433, 7).count == 1433 * 64 + 64 + 64 * 7 + 7 + 11
    for changes in ({"orders": -1}, {"hidden": 0}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            BernNet(**{"orders": 3, "hidden": 4, "dropout": 0.0, "filter_dropout": 0.0, **changes})
