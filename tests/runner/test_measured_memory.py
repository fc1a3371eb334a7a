"""The memory that is measured on a few clients before a run, and runs that have too little of it."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
import torch

import fgl_bench.runner.program
from fgl_bench.engine.training import Trainer
from fgl_bench.runner import memory
from fgl_bench.runner.memory import Need, Plan, ceiling, chunks, largest, measured, network, peak, reset_peak, rise
from tests.quick import prepared

CPU = torch.device("cpu")
METHODS = {
    "fedavg": {}, "fedgta": {}, "scaffold": {}, "fedsa_gcl": {}, "d_psgd": {}, "fed_pub": {"model": "gcn_linear"},
    "fedsage_plus": {"model": "graphsage", "algorithm.gen_rounds": 4}, "adafgl": {"algorithm.federated_rounds": 4}, "fedgl": {},
}  # fmt: skip


def small(algorithm, folder, **changes):
    return prepared(algorithm, folder, {**METHODS.get(algorithm, {}), **changes}, seeds=[0], rounds=8)


def run(spec, federations, chunking=None):
    return fgl_bench.runner.program.simulate(spec, federations, CPU, plan=chunking)


def equal(one, other):
    for model in ("received", "trained"):
        np.testing.assert_array_equal(one.histories[0].scores[model], other.histories[0].scores[model])
    np.testing.assert_array_equal(one.histories[0].losses, other.histories[0].losses)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is that since the process began")
def test_the_peak_is_of_all_that_was_alive_at_once():
    before = reset_peak(CPU)
    blocks = [torch.ones(5 * 10**6) for _ in range(10)]
    size = sum(block.nbytes for block in blocks)
    del blocks
    assert peak(CPU) - before == pytest.approx(size, rel=0.1)
    assert reset_peak(CPU) < before + size / 10, "what was freed is forgotten"


SOON = ("fedavg", "fedsa_gcl", "fedsage_plus")


@pytest.mark.parametrize("algorithm", [name if name in SOON else pytest.param(name, marks=pytest.mark.nightly) for name in METHODS])
def test_measuring_changes_no_number(algorithm, tmp_path):
    spec, federations = small(algorithm, tmp_path, dtype="float64")
    alone = run(spec, federations, Plan(1, None))
    model, state, threads = network(spec, federations, CPU), torch.get_rng_state(), torch.get_num_threads()
    need = measured(spec, federations, model, CPU, 4, 0)
    assert 0 < 1.5 * need.program(1) < ceiling(spec, federations, spec.algorithm.backbone(model)), "what is not measured fits many times"
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads
    equal(alone, run(spec, federations, Plan(1, None)))


def test_memory_of_all_clients_follows_from_that_of_a_few(tmp_path, monkeypatch):
    spec, federations = small("fedavg", tmp_path)
    sizes = []

    def linear(spec, federation, model, device, chunk):
        count = federation.num_clients
        sizes.append((count, chunk))
        return 1000 + 70 * count + 30 * (chunk or count)

    monkeypatch.setattr(memory, "rise", linear)
    assert measured(spec, federations, None, CPU, 4, 6 * 1100) == Need(6, 0, 1100) and sizes == [(1, None)]
    assert measured(spec, federations, None, CPU, 4, 6 * 1100 - 1) == Need(6, 1000 + 6 * 70, 30)
    assert sizes[2:] == [(4, 1), (2, None), (4, None)]
    assert measured(spec, federations, None, CPU, 40, 0) == Need(6, 1000 + 6 * 70, 30), "all of them are measured"
    assert sizes[-2:] == [(6, 1), (6, None)]


def test_a_communication_graph_of_more_clients_is_measured_with_all(tmp_path, monkeypatch):
    spec, federations = small("gossip", tmp_path, **{"algorithm.peers": 5})
    sizes = []
    monkeypatch.setattr(memory, "rise", lambda *args: sizes.append(args[1].num_clients) or rise(*args))
    assert measured(spec, federations, network(spec, federations, CPU), CPU, 4, 0).clients == 6
    assert sizes == [1, 4, 6, 6]


def test_where_two_clients_do_not_fit_one_is_trained_at_a_time(tmp_path, monkeypatch):
    spec, federations = small("fedavg", tmp_path)
    step = Trainer._step

    def limited(trainer, trips, *args):
        if len(trips.rows) > 1:
            raise torch.cuda.OutOfMemoryError
        return step(trainer, trips, *args)

    monkeypatch.setattr(Trainer, "_step", limited)
    assert chunks(spec, federations, CPU, exact=True)[1].replicas == 1


def test_the_largest_clients_are_chosen(tmp_path):
    federation = small("fedavg", tmp_path)[1][0]
    chosen = largest(federation, 3)
    sizes = sorted(client.num_nodes for client in federation.clients)
    assert sorted(client.num_nodes for client in chosen.clients) == sizes[-3:] and chosen.observed is chosen.clients
    assert largest(federation, 6) is federation


@pytest.mark.nightly
@pytest.mark.parametrize("changes", [{}, {"out_of_core": "true"}])
def test_a_plan_made_of_what_was_measured_keeps_its_budget(changes, tmp_path):
    sizes = {"dataset": "csbm", "dataset.num_nodes": 30_000, "dataset.num_edges": 60_000, "dataset.num_features": 64}
    sizes |= {"dataset.words_per_node": "null", "num_clients": 12, "model.hidden": 256}
    spec, federations = small("fedavg", tmp_path, **sizes, **changes)
    model = network(spec, federations, CPU)
    need = measured(spec, federations, model, CPU, 4, 0)
    assert need.step > 0
    for share in (2, 0.5):
        given = dataclasses.replace(spec.settings, memory_budget_gb=share * need.program(1) / 1e9)
        replicas = chunks(dataclasses.replace(spec, settings=given), federations, CPU, exact=True)[1].replicas
        assert (replicas is None) == (share > 1)
        assert rise(spec, federations[0], model, CPU, replicas) < 1.3e9 * given.memory_budget_gb


def test_a_run_that_runs_out_of_memory_goes_on_with_half_of_the_clients(tmp_path, monkeypatch, capsys):
    spec, federations = small("fedgta", tmp_path, dtype="float64")
    whole, step, sizes = run(spec, federations, Plan(1, None)), Trainer._step, []

    def limited(trainer, trips, *args):
        sizes.append(len(trips.rows))
        if len(trips.rows) > 3:
            raise MemoryError
        return step(trainer, trips, *args)

    monkeypatch.setattr(Trainer, "_step", limited)
    halved = run(spec, federations, Plan(1, None))
    assert sizes[:3] == [6, 3, 3] and capsys.readouterr().err.count("memory ran out") == 1
    equal(whole, halved)
