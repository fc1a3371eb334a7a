"""Too little memory makes smaller programs, not failures, and the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fgl_bench.runner.memory
import fgl_bench.runner.program
from fgl_bench.results.callbacks import Callbacks, PointCallback
from fgl_bench.runner import workers
from fgl_bench.runner.memory import Plan
from fgl_bench.runner.workers import forks
from fgl_bench.utils.processes import end_with
from tests.quick import prepared

CPU = torch.device("cpu")


@pytest.mark.parametrize("algorithm", ["fedsa_gcl", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("fedavg", "fedgta"))])
def test_a_tiny_budget_chunks_with_equal_numbers(algorithm, tmp_path):
    outcomes, plans = [], []
    for budget in ("null", 1e-6, 4e-4):
        changes = {"dtype": "float64", "memory_budget_gb": budget}
        spec, federations = prepared(algorithm, tmp_path, changes, seeds=[0, 1], rounds=6)
        plans.append(fgl_bench.runner.memory.chunks(spec, federations, CPU)[1])
        outcomes.append(fgl_bench.runner.program.simulate(spec, federations, CPU, plan=plans[-1]))
    assert plans[0].replicas is None and plans[1].replicas == 1 and plans[2].programs == 1
    for other in outcomes[1:]:
        for whole, chunked in zip(outcomes[0].histories, other.histories, strict=True):
            for model in ("received", "trained"):
                np.testing.assert_array_equal(whole.scores[model], chunked.scores[model])
            np.testing.assert_array_equal(whole.trips, chunked.trips)


@pytest.mark.skipif(not forks(), reason="programs are threads here")
def test_processes_side_by_side_give_the_numbers_of_threads(tmp_path, monkeypatch):
    spec, federations = prepared("fedgta", tmp_path, {"mixing_at": [12]}, seeds=[0, 1, 2], rounds=4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    parents, outcomes = [], []
    monkeypatch.setattr(workers, "end_with", lambda parent: parents.append(parent) or end_with(parent))
    for allowed in (True, False):
        monkeypatch.setattr(workers, "forks", lambda allowed=allowed: allowed)
        outcomes.append(fgl_bench.runner.program.simulate(spec, federations, CPU, plan=Plan(1, None, 3)))
    assert len(parents) == 3
    for one, other in zip(outcomes[0].histories, outcomes[1].histories, strict=True):
        for model in ("received", "trained"):
            np.testing.assert_array_equal(one.scores[model], other.scores[model])
    np.testing.assert_array_equal(outcomes[0].mixing[12], outcomes[1].mixing[12])


@pytest.mark.skipif(not forks(), reason="programs are threads here")
@pytest.mark.parametrize("algorithm", ["fedavg", "fedsa_gcl", "d_psgd"])
def test_every_point_is_heard_of_processes_that_end_before_their_next_report(algorithm, tmp_path, monkeypatch):
    spec, federations = prepared(algorithm, tmp_path, {}, seeds=[0, 1], rounds=4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    heard = []
    callback = PointCallback(heard.append, lambda: None)
    callback.pause = 1000.0
    outcome = fgl_bench.runner.program.simulate(spec, federations, CPU, Callbacks([callback]), Plan(1, None, 2))
    for history in outcome.histories:
        assert [row["trip"] for row in heard if row["seed"] == history.seed] == list(history.trips)


@pytest.mark.parametrize(
    ("model", "mode", "batch_nodes"),
    [("sgc", "lazy", 4), ("sign", "precomputed", 4), ("gamlp", "lazy", "null"), ("gamlp", "precomputed", 4)],
)
def test_decoupled_backbones_in_chunks_have_equal_numbers(model, mode, batch_nodes, tmp_path):
    changes = {"dtype": "float64", "model": model, "model.propagation": mode, "batch_nodes": batch_nodes}
    spec, federations = prepared("fedavg", tmp_path, changes, seeds=[0, 1], rounds=3)
    network = fgl_bench.runner.memory.network(spec, federations, CPU)
    assert network.propagation == mode
    outcomes = [fgl_bench.runner.program.simulate(spec, federations, CPU, plan=Plan(1, replicas)) for replicas in (None, 1, 2)]
    for other in outcomes[1:]:
        for whole, chunked in zip(outcomes[0].histories, other.histories, strict=True):
            for kind in ("received", "trained"):
                np.testing.assert_array_equal(whole.scores[kind], chunked.scores[kind])


def test_what_is_kept_of_the_clients_is_put_together_over_the_seeds(tmp_path):
    kept = []
    for seeds in ("null", 1):
        changes = {"dtype": "float64", "model": "unifilter", "seeds_per_chunk": seeds}
        spec, federations = prepared("fedssa", tmp_path, changes, seeds=[0, 1], rounds=2)
        kept.append(fgl_bench.runner.program.simulate(spec, federations, CPU).final_state)
    assert kept[0]["coefficients"].shape[:2] == kept[0]["class_means"].shape[:2] == (2, 6)
    for name, together in kept[0].items():
        np.testing.assert_allclose(kept[1][name], together, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("changes", "threads", "seeds"),
    [
        ({"split.per_seed": "[]"}, 1, 3),
        ({"split.per_seed": "[]"}, 2, 2),
        ({"split.per_seed": "[masks]"}, 1, 1),
        ({"split.per_seed": "[]", "model.per_feature": "true"}, 1, 1),
        ({"split.per_seed": "[]", "model.hidden": 4096}, 1, 1),
        ({"split.per_seed": "[]", "model": "gcn"}, 1, 1),
    ],
)
def test_seeds_that_read_the_same_matrices_are_one_program(changes, threads, seeds, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    spec, federations = prepared("fedavg", tmp_path, {"model": "unifilter", **changes}, seeds=[0, 1, 2], rounds=1)
    assert fgl_bench.runner.memory.chunks(spec, federations, CPU)[1].seeds == seeds


def test_seeds_in_one_program_have_the_scores_of_programs_of_their_own(tmp_path):
    outcomes = []
    for seeds in ("null", 1):
        changes = {"dtype": "float64", "model": "unifilter", "split.per_seed": "[]", "seeds_per_chunk": seeds}
        spec, federations = prepared("local", tmp_path, changes, seeds=[0, 1, 2], rounds=4)
        outcomes.append(fgl_bench.runner.program.simulate(spec, federations, CPU))
    for one, other in zip(outcomes[0].histories, outcomes[1].histories, strict=True):
        for kind in ("received", "trained"):
            np.testing.assert_array_equal(one.scores[kind], other.scores[kind])
