"""The stacked GAT is PyTorch Geometric's, one client at a time, in both versions."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout
from fgl_bench.models.gat import GAT
from tests.engine.graphs import make_client
from tests.models.checking import CLASSES, EXACT, FEATURES, random_models, run
from tests.reference import message_passing as plain

DEFAULTS = {
    "hidden": 4, "layers": 2, "dropout": 0.0, "version": "v1", "heads": 1, "output_heads": 1, "act": "relu", "attn_dropout": 0.0,
    "head": "conv",
}  # fmt: skip
VERSIONS = {"v1": plain.gat, "v2": plain.gatv2}


def gat(**changes):
    return GAT(**{**DEFAULTS, **changes})


@pytest.mark.parametrize("version", VERSIONS)
def test_huge_scores_stay_finite(version):
    """The largest of a node's scores is taken off before the exponential."""
    model, batch = gat(version=version), Batch([make_client(9)], torch.float32, "cpu")
    layout = model.layout(FEATURES, CLASSES)
    theta = (1e4 * random_models(layout, 1)).float()
    parameters, output = run(model, batch, theta, layout)
    assert torch.isfinite(output.logits).all()
    for gradient in torch.autograd.grad(output.logits.sum(), list(parameters.values())):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_dropout_of_hidden_units_and_of_attention(version):
    client = make_client(12, edges=0.6)
    batch, model = Batch([client], torch.float64, "cpu"), gat(version=version, attn_dropout=0.5, dropout=0.25)
    layout, seen = model.layout(FEATURES, CLASSES), []
    theta = random_models(layout, 1)

    def spy(x, rate=None):
        seen.append((tuple(x.shape), rate))
        return x

    edges = client.edges.shape[1] + 12
    output = run(model, batch, theta, layout, spy)[1]
    assert seen == [((1, edges, 1), 0.5), ((1, 12, 4), None), ((1, edges, 1), 0.5)]
    torch.testing.assert_close(output.logits, run(model, batch, theta, layout)[1].logits, **EXACT)
    drawn = run(model, batch, theta, layout, Dropout(0.25, torch.tensor([1])))[1].logits
    assert not torch.allclose(drawn, output.logits)
    # Without the nodes' own dropout the attention's is unbiased: layer by layer the mean over draws is the deterministic output.
    one = gat(version=version, layers=1, attn_dropout=0.5)
    layout = one.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    wanted = run(one, batch, theta, layout)[1].logits
    draws = [run(one, batch, theta, layout, Dropout(0.0, torch.tensor([i])))[1].logits for i in range(400)]
    torch.testing.assert_close(torch.stack(draws).mean(0), wanted, rtol=0, atol=0.25)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_draws_the_same_whatever_it_is_batched_with(version):
    clients = [make_client(7), make_client(3), make_client(12, edges=0.7)]
    model = gat(version=version, attn_dropout=0.4, dropout=0.5, heads=2)
    layout, keys = model.layout(FEATURES, CLASSES), torch.tensor([3, 5, 8])
    theta, batch = random_models(layout, 3), Batch(clients, torch.float64, "cpu")
    whole = run(model, batch, theta, layout, Dropout(0.5, keys))[1].logits
    for i, client in enumerate(clients):
        for part in (Batch([client], torch.float64, "cpu"), batch.select([i])):
            alone = run(model, part, theta[i : i + 1], layout, Dropout(0.5, keys[i : i + 1]))[1].logits
            torch.testing.assert_close(alone[0, : client.num_nodes], whole[i, : client.num_nodes], **EXACT)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden": 5, "heads": 2}, "multiple of heads=2"),
        ({"hidden": [4, 4]}, "has 1 hidden widths"),
        ({"hidden": "wide"}, "integer of at least 1"),
        ({"heads": 0}, "at least 1"),
        ({"attn_dropout": 1.5}, "between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        gat(**changes)


def test_parameters_and_their_initial_range():
    for version, count in (("v1", 1433 * 64 + 3 * 64 + 64 * 7 + 3 * 7), ("v2", 2 * 1433 * 64 + 4 * 64 + 2 * 64 * 7 + 4 * 7)):
        model = gat(version=version, hidden=64)
        layout = model.layout(1433, 7)
        assert layout.count == count
        named = model.init_parameters(layout, torch.Generator().manual_seed(0))
        bound = (6 / (1433 + 64)) ** 0.5
        assert named["conv0.weight"].abs().max() <= bound and named["conv0.weight"].std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert not named["conv0.bias"].any()
