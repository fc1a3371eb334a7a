"""The multi-layer perceptron."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.models.gcn import GCN
from fgl_bench.models.mlp import MLP
from tests.engine.graphs import make_client
from tests.models.checking import CLASSES, EXACT, FEATURES, random_models, run


def test_is_the_gcn_where_there_are_no_edges():
    client = make_client(9, edges=0.0)
    model, batch = MLP(4, 3, 0.0), Batch([client], torch.float64, "cpu")
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    gcn = GCN(4, 3, 0.0)
    other = gcn.layout(FEATURES, CLASSES)
    moved = other.pack({name.replace("linear", "conv"): view[0] for name, view in layout.views(theta).items()})[None]
    torch.testing.assert_close(run(model, batch, theta, layout)[1].logits, run(gcn, batch, moved, other)[1].logits, **EXACT)


def test_edges_change_nothing():
    client, model = make_client(9), MLP(4, 2, 0.0)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    bare = replace(client, edges=np.zeros((2, 0), np.int64))
    one, two = (run(model, Batch([c], torch.float64, "cpu"), theta, layout)[1].logits for c in (client, bare))
    assert torch.equal(one, two)
