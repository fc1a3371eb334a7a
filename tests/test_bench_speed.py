"""The benchmark suite measures the same job on all sides, counts what must be done, and writes what it measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fgl_bench.utils.seeding import derive_seed
from tests.reference import buffered, sync
from tests.reference.small import small_federation
from tests.reference.training import make_clients

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))

import bench_floor  # noqa: E402
import bench_jobs  # noqa: E402
import bench_loops  # noqa: E402
import bench_speed  # noqa: E402
import measure_memory  # noqa: E402
import measure_rates  # noqa: E402


@pytest.fixture
def job(tmp_path):
    """A graph of 240 nodes for four clients, two seeds, no dropout."""
    return {
        "algorithm": "fedavg", "dataset": "csbm_cora", "clients": 4, "seeds": [0, 1], "rounds": 8, "warm_up": 3, "repeats": 2,
        "device": "cpu", "cache_dir": str(tmp_path), "threads": 1, "tries": [1], "changes": {**bench_speed.QUICK, "model.dropout": 0.0},
    }  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("algorithm", ["fedavg", "fedgta", "fedsa_gcl"])
@pytest.mark.parametrize("kind", ["loop", pytest.param("loop_sparse", marks=pytest.mark.nightly)])
def test_all_sides_train_the_same_models(job, algorithm, kind):
    job = {**job, "algorithm": algorithm}
    engine, loop = (bench_jobs.measure({**job, "kind": side}) for side in ("engine", kind))
    for result in (engine, loop):
        assert len(result["seconds"]) == 2 and min(result["seconds"]) > 0
        assert result["peak"] >= result["increase"] >= 0
    for model in ("received", "trained"):
        assert len(loop[model]) == len(engine[model]) == 2
        assert loop[model] == pytest.approx(engine[model], abs=0.025), "single precision may turn a node or two of about a hundred"


def test_the_sparse_statistics_of_the_loops_are_the_references_own():
    federation = small_federation(3)
    shapes = {"conv0.weight": (6, 4), "conv0.bias": (4,), "conv1.weight": (4, 3), "conv1.bias": (3,)}
    draw = torch.Generator().manual_seed(derive_seed(0, "test"))
    initial = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
    pairs = [(bench_loops.sparse_fedgta(), sync.FedGTA()), (bench_loops.sparse_fedsa_gcl(), buffered.FedSAGCL())]
    for fast, reference in pairs:
        for client in make_clients(federation, initial):
            for found, expected in zip(fast.report(client), reference.report(client), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected))


SIZES = bench_floor.Sizes(clients=2, nodes=10, features=30, entries=40, hidden=4, classes=3, parameters=100)


def test_the_floor_of_a_small_round_worked_out_by_hand():
    flops = sum(step.flops for step in bench_floor.passes("fedavg", SIZES))
    # x h, e h three times; n h Y five and e Y four times; Adam 12 and the average 2 for each of 200 scalars.
    assert flops == 2 * (3 * 30 * 4 + 3 * 40 * 4 + 5 * 10 * 4 * 3 + 4 * 40 * 3) + 14 * 200
    assert bench_floor.training(SIZES)[-1].bytes == 7 * 200 * 4
    assert bench_floor.floor("fedavg", SIZES, 1.0, 1e30) == sum(step.bytes for step in bench_floor.passes("fedavg", SIZES))
    assert bench_floor.floor("fedavg", SIZES, 1e30, 1.0) == pytest.approx(flops)


def test_the_floor_grows_with_what_a_method_adds():
    floors = {name: bench_floor.floor(name, SIZES, 1.0, 1.0) for name in ("fedavg", "fedgta", "fedsa_gcl")}
    assert floors["fedavg"] < floors["fedgta"] < floors["fedsa_gcl"]
    assert bench_floor.floor("fedavg", SIZES, 1.0, 1.0, evaluate=False) < floors["fedavg"]


def test_the_slope_is_the_exponent():
    assert bench_speed.slope([1, 2, 5, 10], [3 * x**1.5 for x in (1, 2, 5, 10)]) == pytest.approx(1.5)


# Methods with networks of their own, and what makes their every phase come in eight rounds.
LARGER = {
    "adafgl": {"algorithm.federated_rounds": 4},
    "fed_pub": {"model": "gcn_linear"},
    "fediih": {"model": "disengcn", "model.factors": 4, "model.width": 64},
    "fedsage_plus": {"model": "graphsage", "algorithm.gen_rounds": 2},
}


@pytest.mark.nightly
@pytest.mark.parametrize("algorithm", ["fedavg", "fedgta", "fedsa_gcl", *LARGER])
def test_memory_of_methods_is_predicted_within_a_fifth(job, algorithm):
    predicted_within_a_fifth(job, algorithm, LARGER.get(algorithm, {}))


def predicted_within_a_fifth(job, algorithm, options):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory can be reset on Linux only")
    sizes = {"dataset.num_nodes": 4000, "dataset.num_edges": 12_000, "dataset.num_features": 500 if options else 3000}
    job = {**job, "kind": "engine", "algorithm": algorithm, "clients": 20, "seeds": [0], "rounds": 8, "repeats": 1}
    job["changes"] = sizes | options
    results = [bench_speed.in_a_process(job) for _ in range(2)]  # what the allocator holds back differs, and only adds
    assert results[0]["predicted"] == pytest.approx(min(result["increase"] for result in results), rel=0.2)


@pytest.mark.nightly
def test_memory_of_a_command_is_measured_beside_its_prediction():
    """Four times the clients of the same size are predicted four times the memory, and what is measured is more than nothing.

    In processes of their own: what other tests left on the heap would count. Without dropout: so would the library that compiles it.
    """
    found = []
    for clients in (2, 8):
        size = ["dataset=csbm", "dataset.num_features=3000", f"dataset.num_nodes={2000 * clients}", f"dataset.num_edges={4000 * clients}"]
        line = [sys.executable, measure_memory.__file__, *size, f"num_clients={clients}", "algorithm=fedavg", "split=metis"]
        line += ["rounds=3", "model.dropout=0"]
        said = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout
        found.append([float(x.replace(",", "")) for x in re.findall(r"(?:predicted|measured) ([\d,]+) MB", said)])
    (small, _), (large, measured) = found
    assert large == pytest.approx(4 * small, rel=0.25) and measured > 0


@pytest.mark.nightly
@pytest.mark.parametrize("algorithm", ["fedavg", *measure_rates.SHORTENED])
def test_rates_are_of_rounds_behind_the_warm_up_and_of_one_local_epoch(monkeypatch, algorithm):
    marks = bench_jobs.Marks.per_round
    asked = []
    monkeypatch.setattr(bench_jobs.Marks, "per_round", lambda self, warm_up: asked.append((self.marks, warm_up)) or marks(self, warm_up))
    tiny = ["dataset=csbm_cora", "dataset.num_nodes=120", "dataset.num_edges=240", "split=metis", "num_clients=3", "seeds=[4,5]"]
    rate = measure_rates.seconds([f"algorithm={algorithm}", *tiny, "local_epochs=2", "rounds=50"], algorithm)
    ((found, warm_up),) = asked
    a_round = marks(type("M", (), {"marks": found, "clients": 3})(), warm_up)
    assert list(found) == [(4,)] and rate == pytest.approx(a_round * 3 / 4)  # one epoch and two of scores, of two and two
    rounds = {"fedavg": measure_rates.ROUNDS, "adafgl": 7, "fedsage_plus": 11}[algorithm]
    assert found[4,][-1][0] == 3 * rounds and warm_up < rounds
