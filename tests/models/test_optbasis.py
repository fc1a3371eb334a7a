"""OptBasisGNN equals the recurrence written for one client and one channel at a time."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.models.optbasis import OptBasis
from tests.engine.graphs import make_client
from tests.models.checking import (
    CLASSES,
    FEATURES,
    dense_propagation,
    features_of,
    random_models,
)


def vectors(matrix, signal, orders):
    """h_0 .. h_K of one channel."""
    if signal.norm() < 1e-8:
        return [torch.zeros_like(signal)] * (orders + 1)
    found = [signal / signal.norm()]
    for _ in range(orders):
        new = matrix @ found[-1]
        rest = new - sum((new @ old) * old for old in found[-2:])
        found.append(rest / rest.norm() if rest.norm() > 1e-6 else torch.zeros_like(rest))
    return found


def plain(client, own):
    matrix, hidden = dense_propagation(client), torch.relu(features_of(client) @ own["lin0.weight"] + own["lin0.bias"])
    channels = [
        sum(alpha * h for alpha, h in zip(own["filter"][:, c], vectors(matrix, hidden[:, c], own["filter"].shape[0] - 1), strict=True))
        for c in range(hidden.shape[1])
    ]
    return torch.stack(channels, 1) @ own["lin1.weight"] + own["lin1.bias"]


def run(model, client, theta):
    batch, views = Batch([client], torch.float64, "cpu"), model.layout(FEATURES, CLASSES).views(theta)
    return model.forward(views, batch, model.first(views, batch), no_dropout)


def test_the_vectors_of_a_channel_are_orthonormal():
    client = make_client(40, 0.1)
    model = OptBasis(6, 7, 0.0)
    layout = model.layout(FEATURES, CLASSES)
    theta, found = random_models(layout, 1), []
    for k in range(7):
        layout.views(theta)["filter"].copy_(torch.eye(7, dtype=torch.float64)[k][None, :, None].expand(1, 7, 7))
        found.append(run(model, client, theta).hidden[0])
    basis = torch.stack(found)
    for c in range(7):
        torch.testing.assert_close(basis[..., c] @ basis[..., c].T, torch.eye(7, dtype=torch.float64), rtol=0, atol=1e-10)


def test_with_the_first_coefficient_alone_it_is_an_mlp_with_normalised_columns():
    client, model = make_client(9), OptBasis(4, 4, 0.0)
    layout = model.layout(FEATURES, CLASSES)
    own = model.init_parameters(layout, torch.Generator().manual_seed(0))
    assert own["filter"].tolist() == [[1.0] * 4] + [[0.0] * 4] * 4
    hidden = torch.relu(features_of(client) @ own["lin0.weight"] + own["lin0.bias"])
    hidden = hidden / hidden.norm(dim=0).clamp(min=1e-8)
    expected = hidden @ own["lin1.weight"] + own["lin1.bias"]
    torch.testing.assert_close(run(model, client, layout.pack(own)[None]).logits[0], expected)


def test_parameters_and_refusals():
    assert OptBasis(10, 64, 0.5).layout(1433, 7).count == 1433 * 64 + 64 + 11 * 64 + 64 * 7 + 7
    for changes in ({"orders": -1}, {"hidden": 0}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            OptBasis(**{"orders": 3, "hidden": 4, "dropout": 0.0, **changes})
