"""GAMLP; its equality with the attention written out node by node is in test_decoupled.py."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.models.gamlp import GAMLP, attention
from tests.engine.graphs import make_client
from tests.models.checking import CLASSES, EXACT, FEATURES, features_of, random_models, run
from tests.reference.decoupled import hops, linear, perceptron

MODES = ["lazy", "precomputed"]


def test_attention_sums_to_one_and_a_sigmoid_keeps_it_near_uniform():
    scores = 50 * torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = attention(scores, scores[..., :1])
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 30, dtype=torch.float64), **EXACT)
    assert (weights.amax(-1) / weights.amin(-1)).max() <= math.e + 1e-9


@pytest.mark.parametrize("mode", MODES)
def test_attention_of_zero_is_the_mean_of_the_hops(mode):
    client, model = make_client(8), GAMLP(mode, 3, 4, 2, 0.0)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    for name in ("attention.weight", "attention.bias"):
        layout.view(theta, name).zero_()
    logits = run(model, Batch([client], torch.float64, "cpu"), theta, layout)[1].logits[0]
    named = {name: view[0] for name, view in layout.views(theta).items()}
    mean = sum(hops(features_of(client), torch.from_numpy(client.edges), 3)) / 4
    torch.testing.assert_close(logits.detach(), perceptron(linear(mean, named, "linear0"), named, range(1, 2)), **EXACT)


@pytest.mark.parametrize("mode", MODES)
def test_a_nodes_logits_do_not_depend_on_which_others_are_there(mode):
    # A component of its own beside a client, before it and after it.
    client, other, model = make_client(6), make_client(5, seed=4), GAMLP(mode, 2, 4, 2, 0.0)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    alone = run(model, Batch([client], torch.float64, "cpu"), theta, layout)[1].logits[0]
    both = replace(
        client,
        nodes=np.arange(11),
        features=np.concatenate([client.features.toarray(), other.features.toarray()]),
        edges=np.concatenate([client.edges, other.edges + 6], 1),
        **{key: np.concatenate([getattr(client, key), getattr(other, key)]) for key in ("labels", "train", "val", "test")},
    )
    together = run(model, Batch([both], torch.float64, "cpu"), theta, layout)[1].logits[0]
    torch.testing.assert_close(together[:6], alone, **EXACT)


def test_what_travels():
    count = GAMLP("auto", 3, 64, 3, 0.5).layout(1433, 7).count
    assert count == (1433 * 64 + 64) + (64 * 64 + 64) + (64 * 7 + 7) + (5 * 1433 + 1) + 1
