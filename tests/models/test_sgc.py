"""SGC; its equality with PyG's ``SGConv`` is in test_decoupled.py."""

from __future__ import annotations

import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.models.sgc import SGC
from tests.engine.graphs import from_edges, make_client
from tests.models.checking import CLASSES, EXACT, FEATURES, features_of, random_models, run


def test_no_hops_is_logistic_regression():
    client, model = make_client(7), SGC("precomputed", 0)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    parameters, output = run(model, Batch([client], torch.float64, "cpu"), theta, layout)
    wanted = features_of(client) @ parameters["linear0.weight"][0] + parameters["linear0.bias"][0]
    torch.testing.assert_close(output.logits[0], wanted, **EXACT)


def test_two_hops_on_a_path_worked_out_by_hand():
    # 0 - 1, and 2 alone: S is 1/2 among the pair, so that every further hop leaves their mean; unit features and weights show S^2.
    batch = Batch([from_edges([(0, 1)], [0, 1, 2])], torch.float64, "cpu")
    for mode in ("lazy", "precomputed"):
        model = SGC(mode, 2)
        layout = model.layout(3, 3)
        theta = layout.pack({"linear0.weight": torch.eye(3, dtype=torch.float64), "linear0.bias": torch.zeros(3, dtype=torch.float64)})
        logits = run(model, batch, theta[None], layout)[1].logits[0]
        wanted = torch.tensor([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], dtype=torch.float64)
        torch.testing.assert_close(logits, wanted, **EXACT)


def test_one_linear_layer_travels_and_nothing_is_dropped():
    model = SGC("auto", 3)
    assert model.layout(1433, 7).count == 1433 * 7 + 7
    assert not model.drops


def test_initial_parameters_are_those_of_a_linear_layer():
    layout = SGC("auto", 3).layout(400, 7)
    initial = SGC("auto", 3).init_parameters(layout, torch.Generator().manual_seed(0))
    for tensor in initial.values():
        assert 0 < tensor.abs().max() <= 400**-0.5
    assert initial["linear0.weight"].abs().max() > 0.99 * 400**-0.5
