"""Every backbone equals its oracle, written for one client, forward and backward; what propagates beforehand equals what does not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.models.bernnet import BernNet
from fgl_bench.models.chebnet import ChebNet
from fgl_bench.models.gamlp import GAMLP
from fgl_bench.models.gat import GAT
from fgl_bench.models.gbp import GBP
from fgl_bench.models.gcn import GCN
from fgl_bench.models.gcn_residual import ResidualGCN
from fgl_bench.models.gin import GIN
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.models.mlp import MLP
from fgl_bench.models.optbasis import OptBasis
from fgl_bench.models.s2gc import S2GC
from fgl_bench.models.sgc import SGC
from fgl_bench.models.sign import SIGN
from tests.engine.graphs import make_client, permuted
from tests.models import test_bernnet, test_chebnet, test_optbasis, test_unifilter
from tests.models.checking import (
    CLASSES,
    EXACT,
    FEATURES,
    assert_equals_network,
    awkward_clients,
    features_of,
    logits_and_gradients,
    random_models,
    run,
)
from tests.reference import decoupled, message_passing


def of_edges(plain, **options):
    """An oracle that takes parameters, features and edges."""
    return lambda client, own: plain(own, features_of(client), torch.from_numpy(client.edges), **options)


def gat(version, hidden=4, layers=2, heads=1, output_heads=1, act="relu", head="conv"):
    plain = {"v1": message_passing.gat, "v2": message_passing.gatv2}[version]
    return GAT(hidden, layers, 0.0, version, heads, output_heads, act, 0.0, head), of_edges(plain, layers=layers, act=act)


def propagating(make, plain, **options):
    """The same model with hops that are made beforehand, and at every step."""
    return {mode: (make(mode), of_edges(plain, **options)) for mode in ("lazy", "precomputed")}


HOPS = {
    "sgc": propagating(lambda mode: SGC(mode, 3), decoupled.sgc, count=3),
    "sgc0": propagating(lambda mode: SGC(mode, 0), decoupled.sgc, count=0),
    "s2gc": propagating(lambda mode: S2GC(mode, 4, 0.05), decoupled.s2gc, count=4, alpha=0.05),
    "gbp": propagating(lambda mode: GBP(mode, 5, 0.1, 0.5, 4, 3, 0.0), decoupled.gbp, count=5, beta=0.1, r=0.5, layers=3),
    "gbp skewed": propagating(lambda mode: GBP(mode, 3, 0.3, 0.2, 4, 1, 0.0), decoupled.gbp, count=3, beta=0.3, r=0.2, layers=1),
    "sign": propagating(lambda mode: SIGN(mode, 3, 4, 2, 0.0), decoupled.sign, count=3, layers=2),
    "sign deep": propagating(lambda mode: SIGN(mode, 1, 4, 4, 0.0), decoupled.sign, count=1, layers=4),
    "gamlp": propagating(lambda mode: GAMLP(mode, 3, 4, 3, 0.0), decoupled.gamlp, count=3, layers=3),
    "gamlp0": propagating(lambda mode: GAMLP(mode, 0, 4, 2, 0.0), decoupled.gamlp, count=0, layers=2),
    "gcn": propagating(lambda mode: GCN(4, 2, 0.0, propagation=mode), message_passing.gcn, layers=2),
    "gcn linear": propagating(lambda mode: GCN(4, 2, 0.0, "linear", propagation=mode), message_passing.gcn, layers=2),
    "gcn 1": propagating(lambda mode: GCN(4, 1, 0.0, propagation=mode), message_passing.gcn, layers=1),
    "gcn residual": propagating(lambda mode: ResidualGCN(4, 2, 0.0, propagation=mode), message_passing.residual_gcn, layers=2),
    "gcn residual 1": propagating(lambda mode: ResidualGCN(4, 1, 0.0, propagation=mode), message_passing.residual_gcn, layers=1),
    "graphsage": propagating(lambda mode: GraphSAGE(4, 3, 0.0, propagation=mode), message_passing.sage, layers=3),
    "graphsage linear": propagating(lambda mode: GraphSAGE([6, 4], 2, 0.0, "linear", propagation=mode), message_passing.sage, layers=2),
    "gin": propagating(lambda mode: GIN(4, 2, 0.0, "batch", "mlp", propagation=mode), message_passing.gin, layers=2),
    "gin linear": propagating(lambda mode: GIN([6, 4], 2, 0.0, "batch", "linear", propagation=mode), message_passing.gin, layers=2),
    "gin plain": propagating(lambda mode: GIN(4, 3, 0.0, "none", "mlp", propagation=mode), message_passing.gin, layers=3),
}
unifilter = partial(test_unifilter.plain, 3, 0.4)
ORACLES = {
    **{f"{name} {mode}": pair for name, both in HOPS.items() for mode, pair in both.items()},
    **{f"mlp {n}": (MLP(4, n, 0.0), of_edges(decoupled.mlp, layers=n)) for n in (1, 3)},
    **{f"gat {version}": gat(version) for version in ("v1", "v2")},
    **{f"gat {version} heads": gat(version, heads=2, output_heads=3) for version in ("v1", "v2")},
    **{f"gat {version} elu": gat(version, [6, 4], 3, act="elu") for version in ("v1", "v2")},
    **{f"gat {version} linear": gat(version, [6, 4], heads=2, head="linear") for version in ("v1", "v2")},
    **{f"gat {version} 1": gat(version, layers=1, output_heads=2) for version in ("v1", "v2")},
    **{f"bernnet {orders}": (BernNet(orders, 4, 0.0, 0.0), test_bernnet.plain) for orders in (0, 1, 10)},
    **{f"chebnet {orders} {layers}": (ChebNet(orders, 4, layers, 0.0, "layers"), test_chebnet.pyg(orders, layers))
       for orders, layers in ((1, 2), (2, 1), (5, 3))},
    **{f"chebnet filter {orders}": (ChebNet(orders, 4, 2, 0.0, "filter"), test_chebnet.one_filter) for orders in (1, 2, 5)},
    **{f"optbasis {orders}": (OptBasis(orders, 4, 0.0), test_optbasis.plain) for orders in (0, 1, 3)},
    **{f"unifilter {basis} {layers}": (test_unifilter.model(layers=layers, basis=basis), unifilter(layers, basis == "code"))
       for basis in ("exact", "code") for layers in (1, 2)},
    "unifilter features": (test_unifilter.model(per_feature=True), unifilter(2)),
    "unifilter residual": (test_unifilter.model(layers=3), unifilter(3, residual=True)),
}  # fmt: skip


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("name", ORACLES)
def test_equals_the_oracle_forward_and_backward(name, dense):
    model, oracle = ORACLES[name]
    assert_equals_network(model, oracle, awkward_clients(sparse=not dense, dense_values=dense))


def logits(model, clients, theta, layout):
    return run(model, Batch(clients, torch.float64, "cpu"), theta, layout)[1].logits


@pytest.mark.parametrize("name", ORACLES)
def test_renumbering_nodes_renumbers_the_logits(name):
    client, model, order = make_client(12), ORACLES[name][0], np.random.default_rng(0).permutation(12)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    moved = logits(model, [permuted(client, order)], theta, layout)[0]
    torch.testing.assert_close(moved, logits(model, [client], theta, layout)[0, order])


@pytest.mark.parametrize("name", ORACLES)
def test_initial_parameters_have_their_shapes_and_follow_the_seed(name):
    model = ORACLES[name][0]
    layout = model.layout(300, 7)
    first, again, other = (model.init_parameters(layout, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert layout.shapes.keys() == first.keys() and any(not torch.equal(first[key], other[key]) for key in first)
    assert all(first[key].shape == shape and torch.equal(first[key], again[key]) for key, shape in layout.shapes.items())


@pytest.mark.parametrize("name", HOPS)
def test_features_put_in_place_of_the_clients_are_propagated_anew(name):
    client, model = make_client(6), HOPS[name]["precomputed"][0]
    batch = Batch([client], torch.float64, "cpu")
    other = Batch([replace(client, features=make_client(6, seed=5).features)], torch.float64, "cpu")
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    run(model, batch, theta, layout)  # hops made of the old features
    wanted = run(model, other, theta, layout)[1].logits
    batch.features = other.features
    assert not batch.pristine and not batch.select([0]).pristine
    torch.testing.assert_close(run(model, batch, theta, layout)[1].logits, wanted, **EXACT)


@pytest.mark.parametrize("name", [name for name in HOPS if name.startswith(("s", "gb", "ga"))])
def test_seeds_share_the_hops_of_their_clients(name):
    clients = [make_client(7), make_client(9, seed=1), make_client(4)] * 2
    batch = Batch(clients, torch.float64, "cpu")
    lazy, made = (HOPS[name][mode][0] for mode in ("lazy", "precomputed"))
    layout = made.layout(FEATURES, CLASSES)
    theta = random_models(layout, 6)
    wanted = logits_and_gradients(lazy, batch, theta, layout)
    for part in ([0, 1, 2, 3, 4, 5], [1, 2], [4], [0, 3, 5], [5, 1]):
        found = logits_and_gradients(made, batch.select(part), theta[part], layout)
        torch.testing.assert_close(found[0], wanted[0][part], **EXACT)
    assert batch.derived(made.hop_matrices()).values.shape[:2] == (3, made.hop_matrices().copies), "two seeds share three clients' hops"
    for ours, theirs in zip(logits_and_gradients(made, batch, theta, layout), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)
