"""Dense features in half precision: products of data and weights are coarser, models and gradients keep their type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import fgl_bench.runner.memory
import fgl_bench.runner.program
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.propagation import Hops, identity, mean_terms
from fgl_bench.errors import UserError
from fgl_bench.models.gamlp import GAMLP
from fgl_bench.models.gcn import GCN
from fgl_bench.models.sgc import SGC
from fgl_bench.models.sign import SIGN
from fgl_bench.models.unifilter import UniFilter
from tests.engine.graphs import make_client
from tests.models.checking import logits_and_gradients, random_models
from tests.quick import prepared

CPU, FEATURES, CLASSES = torch.device("cpu"), 40, 3
UNIFILTER = {"orders": 3, "tau": 0.5, "hidden": 8, "layers": 2, "dropout": 0.0, "input_dropout": 0.0, "basis_dropout": 0.0,
             "basis": "exact", "homophily": "client",
             "default_homophily": 0.5, "per_feature": False, "filter_lr": None, "filter_weight_decay": None}  # fmt: skip
MODELS = {
    "gcn": GCN(hidden=8, layers=2, dropout=0.0, propagation="precomputed"),
    "gcn, propagated in every step": GCN(hidden=8, layers=2, dropout=0.0, propagation="lazy"),
    "sgc": SGC(hops=2, propagation="precomputed"),
    "sign": SIGN(hops=2, hidden=8, layers=2, dropout=0.0, propagation="precomputed"),
    "gamlp": GAMLP(hops=2, hidden=8, layers=2, dropout=0.0, propagation="precomputed"),
    "unifilter": UniFilter(**UNIFILTER),
}

SIZE = {"clients": 4, "seeds": [0], "rounds": 6}


def clients_of(*sizes: int):
    rng = np.random.default_rng(0)
    return [replace(make_client(n), features=rng.normal(size=(n, FEATURES)).astype(np.float32)) for n in sizes]


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shared", [False, True], ids=["", "seeds share clients"])
def test_logits_and_gradients_are_those_of_rounded_data_in_the_models_type(name, shared):
    model, clients = MODELS[name], clients_of(30, 24)
    clients = clients * 2 if shared else clients
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, len(clients)).float()
    exact = logits_and_gradients(model, Batch(clients, torch.float32, CPU), theta, layout)
    found = logits_and_gradients(model, Batch(clients, torch.float32, CPU, torch.bfloat16), theta, layout)
    for half, full in zip(found, exact, strict=True):
        assert half.dtype == torch.float32
        assert 0 < error(half, full) < 0.03, "eight bits: coarser, and no more than that"


def test_means_of_filtered_features_keep_their_type():
    exact, half = (Batch(clients_of(30, 24), torch.float32, CPU, kind) for kind in (None, torch.bfloat16))
    for mean in (UniFilter(**UNIFILTER).mean_responses, lambda batch: mean_terms(batch, 3)):
        assert mean(half).dtype == torch.float32
        assert error(mean(half), mean(exact)) < 0.03


def test_what_is_derived_is_made_exactly_and_rounded_once():
    clients = clients_of(30, 24)
    exact, half = (Batch(clients, torch.float32, CPU, kind).derived(Hops(identity(3))).values for kind in (None, torch.bfloat16))
    assert half.dtype == torch.bfloat16 and torch.equal(half, exact.bfloat16())


def test_parts_of_a_batch_are_held_alike():
    batch = Batch(clients_of(30, 24, 10), torch.float32, CPU, torch.bfloat16)
    part = batch.select([2, 0])
    assert part.feature_dtype == part.features.values.dtype == part.derived(Hops(identity(1))).values.dtype == torch.bfloat16
    assert part.labels.dtype == torch.int64 and part.degree.dtype == torch.float32


def test_half_the_bytes_are_held_of_dense_features():
    batch = Batch(clients_of(30, 30), torch.float32, CPU, torch.bfloat16)
    assert batch.features.values.nbytes == 2 * 30 * FEATURES * 2


@pytest.mark.parametrize("algorithm", ["fedavg", "fedssa"])
def test_whole_runs_end_close_to_those_in_full_precision(algorithm, tmp_path):
    accuracy = {}
    for kind in ("null", "bfloat16"):
        spec, federations = prepared(algorithm, tmp_path, {"model": "unifilter", "feature_dtype": kind}, **SIZE)
        outcome = fgl_bench.runner.program.simulate(spec, federations, CPU)
        accuracy[kind] = outcome.histories[0].pooled("trained")[-1, 1]
    assert accuracy["bfloat16"] == pytest.approx(accuracy["null"], abs=0.1)


def test_hops_of_half_the_bytes_fit_half_the_budget(tmp_path):
    """Four copies of 6 clients' features, padded to the largest."""
    chosen = {}
    for kind in ("null", "bfloat16"):
        changes = {"model": "sign", "model.hops": 3, "model.propagation": "precomputed", "feature_dtype": kind}
        spec, federations = prepared("fedavg", tmp_path, changes, **SIZE)
        nodes = max(client.num_nodes for client in federations[0].clients)
        budget = 4 * len(federations[0].clients) * nodes * federations[0].num_features * 2 / 1e9
        spec = replace(spec, settings=replace(spec.settings, memory_budget_gb=1.01 * budget))
        try:
            chosen[kind] = fgl_bench.runner.memory.network(spec, federations, CPU).propagation
        except UserError:
            chosen[kind] = "refused"
    assert chosen == {"null": "refused", "bfloat16": "precomputed"}
