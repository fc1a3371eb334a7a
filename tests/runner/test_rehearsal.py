"""The memory that is measured before a run: what is counted, and that plans made of it are kept."""

from __future__ import annotations

import dataclasses
import functools
import os
import resource
import signal

import numpy as np
import pytest
import torch

import fgl_bench.runner.memory
import fgl_bench.runner.run
from fgl_bench.engine.training import Trainer
from fgl_bench.errors import UserError
from fgl_bench.results.progress import RunProgress
from fgl_bench.runner import rehearsal
from fgl_bench.runner.memory import Plan
from fgl_bench.runner.program import simulation
from fgl_bench.runner.rehearsal import HOLES, ceiling, measured, rehearse
from fgl_bench.runner.workers import apart, forks
from fgl_bench.utils.live_bytes import LiveBytes, ResidentBytes
from tests.quick import prepared

CPU = torch.device("cpu")
METHODS = {
    "fedavg": {}, "fedgta": {}, "scaffold": {}, "fedsa_gcl": {}, "d_psgd": {}, "fed_pub": {"model": "gcn_linear"},
    "fedsage_plus": {"model": "graphsage", "algorithm.gen_rounds": 4}, "adafgl": {"algorithm.federated_rounds": 4}, "fedgl": {},
}  # fmt: skip


def small(algorithm, folder, **changes):
    return prepared(algorithm, folder, {**METHODS.get(algorithm, {}), **changes}, seeds=[0], rounds=8)


def run(spec, federations, replicas=None):
    return fgl_bench.runner.run.simulate(spec, federations, CPU, RunProgress("test", 1, False), Plan(1, replicas))


def counted(spec, federations, replicas=None):
    """Bytes that the whole run holds at most, by the counter."""
    model = fgl_bench.runner.memory.network(spec, federations, CPU)
    with LiveBytes() as counter:
        made, drops = spec.fresh_algorithm(), spec.scenario.drops_uploads
        sim = simulation(spec.settings, federations, model, made, CPU, spec.rounds, spec.trips, replicas, drops)
        spec.scenario.run(sim)
    return counter.peak


# ---- the counter


def test_what_is_alive_at_once_is_counted():
    with LiveBytes() as counter:
        one = torch.zeros(10_000, dtype=torch.float64)
        view = one.view(10, 1000)[2:5]
        two = torch.ones(30_000, dtype=torch.float64)
        assert counter.live == 320_000, "a view takes nothing"
        del one, two
        assert counter.live == 80_000, "a view keeps what it is a view of"
        del view
        assert counter.live == 0
    assert 320_000 <= counter.peak < 340_000


def test_the_backward_pass_and_arrays_are_counted():
    weight = torch.ones(500, 500, requires_grad=True)
    with LiveBytes() as counter:
        torch.autograd.grad((weight * 2).exp().sum(), [weight])
    assert 2 * weight.nbytes <= counter.peak, "the result of exp and its gradient"
    with LiveBytes() as counter:
        array = np.zeros(100_000)
        tensor = torch.from_numpy(array)[5:]
        assert tensor.sum() == 0 and counter.live < 1000, "a tensor of an array is no memory more"
    assert array.nbytes <= counter.peak < array.nbytes + 20_000


def test_a_limit_is_kept():
    with pytest.raises(MemoryError), LiveBytes(1000):
        torch.zeros(1000)


# ---- the rehearsal


@pytest.mark.parametrize("algorithm", METHODS)
def test_a_run_holds_what_its_rehearsal_held(algorithm, tmp_path):
    spec, federations = small(algorithm, tmp_path)
    model = fgl_bench.runner.memory.network(spec, federations, CPU)
    for replicas in (None, 2):
        predicted = rehearse(spec, federations[0], model, CPU, replicas, LiveBytes())
        assert counted(spec, federations, replicas) == pytest.approx(predicted, rel=0.1)
    assert 1.5 * HOLES * predicted < ceiling(spec, federations, spec.algorithm.backbone(model)), "what is not measured fits many times over"


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsa_gcl", "adafgl"])
def test_more_replicas_never_need_less_and_a_plan_keeps_its_budget(algorithm, tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "forks", lambda: False)  # so that the count is the same in every call
    spec, federations = small(algorithm, tmp_path, **{"model.hidden": 256})
    model = fgl_bench.runner.memory.network(spec, federations, CPU)
    whole, one = (int(HOLES * rehearse(spec, federations[0], model, CPU, replicas, LiveBytes())) for replicas in (None, 1))
    need = measured(spec, federations, model, CPU, 1)
    assert need.single == pytest.approx(one, rel=0.02) and need.step > 0
    need = measured(spec, federations, model, CPU, (whole + one) // 2)
    assert need.program(1, 1) <= need.program(1, 2) <= need.program(1, 5) and need.program(1) > (whole + one) // 2
    for budget in (whole, (whole + one) // 2, one):
        given = dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, memory_budget_gb=1.01 * budget / 1e9))
        replicas = fgl_bench.runner.run.chunks(given, federations, CPU)[1].replicas
        assert HOLES * counted(given, federations, replicas) <= 1.1 * budget
        assert (replicas is None) == (budget == whole), (replicas, budget, need)


def test_few_clients_in_files_tell_what_all_take(tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "forks", lambda: False)
    sizes = {"num_nodes": 12000, "num_edges": 24000, "num_features": 8, "words_per_node": "null"}
    changes = {"num_clients": 24, "out_of_core": True, "cache_dir": str(tmp_path / "cache"), "model.hidden": 64}
    changes |= {"dataset": "csbm", **{f"dataset.{key}": value for key, value in sizes.items()}}
    spec, federations = small("fedgta", tmp_path, **changes)
    model = fgl_bench.runner.memory.network(spec, federations, CPU)
    sizes, rehearsed = [], rehearsal.rehearse

    def recorded(spec, federation, *rest):
        sizes.append(federation.num_clients)
        return rehearsed(spec, federation, *rest)

    monkeypatch.setattr(rehearsal, "rehearse", recorded)
    found = measured(spec, federations, model, CPU, 1)
    assert set(sizes) == {16}
    monkeypatch.setattr(rehearsal, "FEW", 100)
    known = measured(spec, federations, model, CPU, 1)
    assert set(sizes) == {16, 24}
    assert (found.clients, found.row) == (known.clients, known.row)
    for replicas in (1, 5, 24):
        assert 0.9 < found.program(1, replicas) / known.program(1, replicas) < 1.3, "too much costs time, too little memory"


@pytest.mark.skipif(not forks(), reason="needs forked processes")
def test_a_forked_process_tells_how_far_its_memory_rises(tmp_path, monkeypatch):
    def touched():
        blocks = [torch.ones(5 * 10**6) for _ in range(10)]
        return sum(block.nbytes for block in blocks)

    def rise(limit=None):
        with ResidentBytes(limit) as counter:
            size = touched()
        return counter.peak, size

    peak, size = apart(rise)
    assert peak == pytest.approx(size, rel=0.1)
    with pytest.raises(UserError, match="allocate memory"):  # raised in this file, a user's as it were
        apart(lambda: rise(size // 20))
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY, "the limit is the other process's"
    spec, federations = small("fedavg", tmp_path)
    model = fgl_bench.runner.memory.network(spec, federations, CPU)
    alive = rehearse(spec, federations[0], model, CPU, None, LiveBytes())
    assert 0.8 * alive < measured(spec, federations, model, CPU, 10**9).whole < 4 * alive
    monkeypatch.setattr(rehearsal, "_first_and_last", lambda *args: touched())
    assert measured(spec, federations, model, CPU, 10**9).whole == pytest.approx(size, rel=0.1)
    with pytest.raises(MemoryError):  # wherever it was
        apart(functools.partial(rehearse, spec, federations[0], model, CPU, None, ResidentBytes(size // 20)))


@pytest.mark.skipif(not forks(), reason="needs forked processes")
def test_a_process_that_was_killed_did_not_fit(tmp_path, monkeypatch):
    spec, federations = small("fedavg", tmp_path)
    model, at_once = fgl_bench.runner.memory.network(spec, federations, CPU), rehearsal.rehearse

    def killed(spec, federation, model, device, chunk, counter):
        if chunk is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return at_once(spec, federation, model, device, chunk, counter)

    monkeypatch.setattr(rehearsal, "rehearse", killed)
    budget = 10**9
    need = measured(spec, federations, model, CPU, budget)
    assert need.whole > budget > need.single


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsa_gcl", "fedsage_plus"])
def test_measuring_changes_no_number(algorithm, tmp_path, monkeypatch):
    spec, federations = small(algorithm, tmp_path)
    alone, measurements = run(spec, federations), []
    monkeypatch.setattr(rehearsal, "CEILING", 10**9)
    monkeypatch.setattr(rehearsal, "forks", lambda: False)
    monkeypatch.setattr(rehearsal, "rehearse", lambda *args: measurements.append(rehearse(*args)) or measurements[-1])
    after = fgl_bench.runner.run.simulate(spec, federations, CPU, RunProgress("test", 1, False))
    assert measurements
    for model in ("received", "trained"):
        np.testing.assert_array_equal(alone.histories[0].scores[model], after.histories[0].scores[model])
    np.testing.assert_array_equal(alone.histories[0].losses, after.histories[0].losses)


def test_a_run_that_runs_out_of_memory_goes_on_with_half_of_the_clients(tmp_path, monkeypatch, capsys):
    spec, federations = small("fedgta", tmp_path, dtype="float64")
    whole, step, sizes = run(spec, federations), Trainer._step, []

    def limited(trainer, trips, *args):
        sizes.append(len(trips.rows))
        if len(trips.rows) > 3:
            raise MemoryError
        return step(trainer, trips, *args)

    monkeypatch.setattr(Trainer, "_step", limited)
    halved = run(spec, federations)
    assert sizes[:3] == [6, 3, 3] and capsys.readouterr().err.count("memory ran out") == 1
    for model in ("received", "trained"):
        np.testing.assert_array_equal(whole.histories[0].scores[model], halved.histories[0].scores[model])
