"""The message-passing backbones equal PyTorch Geometric's layers, lazily and with the first propagation made beforehand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.models.gat import GAT
from fgl_bench.models.gcn import GCN
from fgl_bench.models.gin import GIN
from fgl_bench.models.graphsage import GraphSAGE
from tests.engine.graphs import make_client
from tests.models.checking import (
    CLASSES,
    FEATURES,
    random_models,
    run,
)
from tests.reference import message_passing as plain

MODELS = {
    "gcn": (lambda: GCN(4, 2, 0.5), plain.gcn, 2),
    "gcn_linear": (lambda: GCN(4, 2, 0.5, head="linear"), plain.gcn, 2),
    "gcn_1": (lambda: GCN(4, 1, 0.5), plain.gcn, 1),
    "graphsage": (lambda: GraphSAGE(4, 3, 0.5), plain.sage, 3),
    "graphsage_linear": (lambda: GraphSAGE([6, 4], 2, 0.5, "linear"), plain.sage, 2),
    "gin": (lambda: GIN(4, 2, 0.5, "batch", "mlp"), plain.gin, 2),
    "gin_linear": (lambda: GIN([6, 4], 2, 0.5, "batch", "linear"), plain.gin, 2),
    "gin_plain": (lambda: GIN(4, 3, 0.5, "none", "mlp"), plain.gin, 3),
}
GATS = {
    "gat": lambda: GAT(4, 2, 0.5, "v1", 2, 1, "relu", 0.3, "conv"),
    "gatv2": lambda: GAT([6, 4], 2, 0.5, "v2", 1, 1, "elu", 0.0, "linear"),
}
EVERY = {**{name: make for name, (make, _, _) in MODELS.items()}, **GATS}


def settled(model, clients, fits=True):
    return model.settle(clients, CLASSES, torch.device("cpu"), 50, None, lambda copies: copies == 1 and fits)


@pytest.mark.parametrize("name", ["gcn", "graphsage"])
def test_the_first_propagation_is_made_beforehand_where_that_is_less_work(name):
    dense, sparse = ([make_client(30, seed=i, sparse=not full, features=40) for i in range(3)] for full in (True, False))
    dense = [replace(client, features=np.ones_like(client.features)) for client in dense]
    sparse = [replace(client, features=client.features.multiply(client.features > 2).tocsr()) for client in sparse]
    model = EVERY[name]()
    assert settled(model, dense).propagation == "precomputed"
    assert settled(model, sparse).propagation == "lazy"
    assert settled(model, dense, fits=False).propagation == "lazy"
    # The neighbours' sums of GIN need a second wide product: only more neighbours than features are worth one.
    assert settled(EVERY["gin"](), dense).propagation == "lazy"


def test_gin_gives_numbers_for_a_client_of_whose_nodes_none_is_there():
    client = make_client(7)
    absent = replace(client, edges=client.edges[:, :0], present=np.zeros(7, dtype=bool))
    model = GIN(4, 2, 0.0, "batch", "mlp")
    layout = model.layout(FEATURES, CLASSES)
    assert run(model, Batch([absent, client], torch.float64, "cpu"), random_models(layout, 2), layout)[1].logits.isfinite().all()


def test_gin_normalises_over_every_clients_own_nodes():
    clients, model = [make_client(7), make_client(1), make_client(12)], GIN(4, 1, 0.0, "batch", "linear")
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 3)
    layout.view(theta, "conv0.out_scale").fill_(1.0)
    layout.view(theta, "conv0.out_shift").fill_(10.0)  # the ReLU lets everything pass
    hidden = run(model, Batch(clients, torch.float64, "cpu"), theta, layout)[1].hidden
    for client, x in zip(clients, hidden, strict=True):
        x = x[: client.num_nodes]
        torch.testing.assert_close(x.mean(0), torch.full((4,), 10.0, dtype=x.dtype))
        if client.num_nodes > 1:
            assert ((x.var(0, unbiased=False) > 0.99) & (x.var(0, unbiased=False) < 1)).all()
        else:
            torch.testing.assert_close(x[0], torch.full((4,), 10.0, dtype=x.dtype))


def test_gin_starts_as_pytorch_does():
    model = GIN(64, 2, 0.5, "batch", "mlp")
    layout = model.layout(1433, 7)
    named = model.init_parameters(layout, torch.Generator().manual_seed(0))
    for name, value in named.items():
        if name.endswith("scale"):
            assert (value == 1).all()
        elif name.endswith(("shift", "epsilon")):
            assert not value.any()
        else:
            fan = layout.shapes[name.replace("bias", "weight")][0]
            assert value.abs().max() <= fan**-0.5 and value.std().item() == pytest.approx((3 * fan) ** -0.5, rel=0.4)
    without = GIN(64, 2, 0.5, "none", "mlp").layout(1433, 7)
    assert set(layout.shapes) - set(without.shapes) == {name for name in layout.shapes if name.endswith(("scale", "shift"))}


@pytest.mark.parametrize("make", [lambda hidden: GraphSAGE(hidden, 2, 0.5, "linear"), lambda hidden: GIN(hidden, 2, 0.5, "batch", "mlp")])
def test_widths_one_by_one(make):
    layout = make([256, 128]).layout(10, 3)
    assert layout.shapes["head.weight"] == (128, 3) and layout.shapes["conv1.weight"][0] == 256
    assert make(64).layout(10, 3).shapes == make([64, 64]).layout(10, 3).shapes
    for wrong in ([64], [64, 64, 64], [64, 0], "wide", 0):
        with pytest.raises(ValueError, match="hidden="):
            make(wrong)
