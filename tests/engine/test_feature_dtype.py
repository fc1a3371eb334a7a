"""Dense features in half precision: products of data and weights are coarser, models and gradients keep their type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import fgl_bench.runner.planning
import fgl_bench.runner.run
from fgl_bench.engine.activations import Activations
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.propagation import Hops, identity
from fgl_bench.engine.spectral import mean_terms
from fgl_bench.models.gamlp import GAMLP
from fgl_bench.models.gcn import GCN
from fgl_bench.models.sgc import SGC
from fgl_bench.models.sign import SIGN
from fgl_bench.models.unifilter.unifilter import UniFilter
from fgl_bench.reporting.progress import RunProgress
from fgl_bench.runner.memory import graph_bytes, loaded_bytes, seed_bytes
from tests.engine.graphs import federation, make_client
from tests.models.checking import logits_and_gradients, random_models
from tests.quick import prepared

CPU, FEATURES, CLASSES = torch.device("cpu"), 40, 3
UNIFILTER = {"orders": 3, "tau": 0.5, "hidden": 8, "layers": 2, "dropout": 0.0, "input_dropout": 0.0, "basis_dropout": 0.0,
             "basis": "exact", "homophily": "client"}  # fmt: skip
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


def test_half_the_bytes_are_predicted_for_dense_features_and_none_for_sparse_ones():
    clients = clients_of(30, 30)
    batch = Batch(clients, torch.float32, CPU, torch.bfloat16)
    dense = 2 * 30 * FEATURES * 2
    assert batch.features.values.nbytes == dense
    assert graph_bytes(clients, 1, 4, CPU) - graph_bytes(clients, 1, 4, CPU, 2) == dense
    sparse = [make_client(30, features=FEATURES) for _ in range(2)]
    sparse = [replace(client, features=client.features.multiply(client.features > 1).tocsr()) for client in sparse]
    assert graph_bytes(sparse, 1, 4, CPU) == graph_bytes(sparse, 1, 4, CPU, 2)
    layout = MODELS["sign"].layout(FEATURES, CLASSES)
    full, half = (seed_bytes([federation(clients)], layout, Activations(8, 8), 4, 4, CPU, derived=3, held=held) for held in (None, 2))
    assert full.derived == 2 * half.derived == 4 * batch.derived(Hops(identity(2))).values.numel()
    assert loaded_bytes(clients, 1, 3, 4, 4) - loaded_bytes(clients, 1, 3, 4, 2) == 30 * FEATURES * 2 * 3


@pytest.mark.parametrize("algorithm", ["fedavg", "fedssa"])
def test_whole_runs_end_close_to_those_in_full_precision(algorithm, tmp_path):
    accuracy = {}
    for kind in ("null", "bfloat16"):
        spec, federations = prepared(algorithm, tmp_path, {"model": "unifilter", "feature_dtype": kind}, **SIZE)
        outcome = fgl_bench.runner.run.simulate(spec, federations, CPU, RunProgress("test", 1, False))
        accuracy[kind] = outcome.histories[0].pooled("trained")[-1, 1]
    assert accuracy["bfloat16"] == pytest.approx(accuracy["null"], abs=0.1)


def test_the_plan_counts_on_half_the_memory(tmp_path):
    derived = {}
    for kind in ("null", "bfloat16"):
        spec, federations = prepared("fedavg", tmp_path, {"model": "unifilter", "feature_dtype": kind}, **SIZE)
        network = fgl_bench.runner.planning.network(spec, federations, CPU)
        derived[kind] = fgl_bench.runner.planning.needed(spec, federations, CPU, network).derived
    assert derived["null"] == 2 * derived["bfloat16"] > 0
