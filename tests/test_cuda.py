"""What must hold on a CUDA device; skipped without one. That no round waits for the host is also checked on a CPU."""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fgl_bench.algorithms.base import replays_steps
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedgta import FedGTA
from fgl_bench.algorithms.fedprox import FedProx
from fgl_bench.algorithms.fedsa_gcl import FedSAGCL
from fgl_bench.algorithms.scaffold import Scaffold
from fgl_bench.engine.dropout import Dropout
from fgl_bench.engine.random_numbers import step_key
from fgl_bench.engine.replay import WARM_UP
from fgl_bench.evaluation.history import History
from fgl_bench.evaluation.metrics import scored_nodes
from fgl_bench.models.gcn import GCN
from fgl_bench.runner.build import simulation
from fgl_bench.runner.memory import Plan
from fgl_bench.runner.program import simulate
from tests.device_cases import CASES, prepared, recorded_waits
from tests.engine.graphs import federation, make_client
from tests.pretend_cuda import Ledger, on_cpu, turning
from tests.small_runs import semi_async, synchronous
from tests.test_equivalence import GTA, SAGCL

CUDA = torch.device("cuda")
cuda = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
METHODS = {"fedavg": lambda: FedAvg(), "fedgta": lambda: FedGTA(**GTA)}
SETTINGS = {
    "dtype": "float64", "agg_weight": "train", "local_epochs": 2, "lr": 0.01, "weight_decay": 5e-4, "opt_state": "persist",
    "batch_nodes": None, "clip_gradient": None, "participation": 1.0, "eval_every": None, "mixing_at": (), "metrics": (),
    "feature_dtype": None, "virtual_time": None,
    "cuda_graphs": False,
}  # fmt: skip


class Settings:
    def __init__(self, **changes):
        vars(self).update(SETTINGS | changes)


def made(device, algorithm, scenario, *, rounds=4, chunk=None, dropout=0.0, dense=False, model=None, **changes):
    """A simulation of two seeds of five clients."""
    parts = [federation([make_client(8 + 3 * i, seed=s, sparse=not dense) for i in range(5)], seed=s) for s in (0, 1)]
    model = model or GCN(hidden=8, layers=2, dropout=dropout)
    sim = simulation(Settings(**changes), parts, model, algorithm, torch.device(device), rounds, rounds * 5, chunk, scenario.drops_uploads)
    return sim, parts


def histories(device, algorithm, scenario, **options):
    sim, parts = made(device, algorithm, scenario, **options)
    scenario.run(sim)
    scores = sim.log.read()
    return sim, [History.of(f.seed, p, scores, scored_nodes(f.clients, f.metric)) for f, p in zip(parts, sim.points, strict=True)]


def assert_equal_scores(first, second):
    for one, other in zip(first, second, strict=True):
        for model in ("received", "trained"):
            np.testing.assert_array_equal(one.scores[model], other.scores[model])


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("method", [*METHODS, "fedsa_gcl"])
class TestDevice:
    pytestmark = cuda

    def pair(self, method):
        return (METHODS[method](), synchronous()) if method in METHODS else (FedSAGCL(**SAGCL), semi_async())

    def test_both_devices_agree(self, method, dense):
        runs = [histories(device, *self.pair(method), dense=dense)[1] for device in ("cpu", "cuda")]
        assert_equal_scores(*runs)

    def test_replayed_steps_are_the_eager_ones(self, method, dense):
        runs = [
            histories("cuda", *self.pair(method), dense=dense, dropout=0.5, rounds=9, cuda_graphs=graphs)[1] for graphs in (False, True)
        ]
        assert_equal_scores(*runs)

    def test_chunks_change_nothing(self, method, dense):
        runs = [histories("cuda", *self.pair(method), dense=dense, dropout=0.5, chunk=chunk)[1] for chunk in (None, 3)]
        assert_equal_scores(*runs)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_dropout_masks_are_the_same_on_both_devices():
    x, stream, trip = torch.ones(3, 7, 10), torch.tensor([5, -9, 2**60]), torch.tensor([0, 1, 2])
    masks = []
    for device in ("cpu", "cuda"):
        dropout = Dropout(0.5, step_key(stream.to(device), trip.to(device), 1))
        masks.append([dropout(x.to(device)).cpu() for _ in range(2)])
    for host, device in zip(*masks, strict=True):
        assert torch.equal(host, device)
    assert not torch.equal(*masks[0]), "every layer has a mask of its own"


def with_guard(sim, scenario, guard, warm=2):
    """Run the rounds after the first ``warm`` inside ``guard``: from one report of progress to the next-to-last."""
    seen = []
    with ExitStack() as guarded:  # left also where a round fails: the guard would refuse what later tests do

        def progress(trips, accuracy):
            seen.append(trips)
            if len(seen) == warm:
                guarded.enter_context(guard())
            elif len(seen) == sim.rounds:
                guarded.close()

        sim.progress = progress
        scenario.run(sim)
    assert len(seen) == sim.rounds + 1  # and once more at the end, when the last models have been scored


class Unsynchronised:
    """CUDA's own alarm for operations that wait for the device."""

    def __enter__(self):
        with warnings.catch_warnings(action="ignore"):  # "a prototype feature"
            torch.cuda.set_sync_debug_mode("error")

    def __exit__(self, *_):
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("chunk", "opt_state"), [(None, "persist"), (None, "reset"), (3, "persist")])
@pytest.mark.parametrize("method", METHODS)
def test_no_round_waits_for_the_device(method, chunk, opt_state):
    scenario = synchronous()
    sim, _ = made("cuda", METHODS[method](), scenario, rounds=6, dropout=0.5, chunk=chunk, opt_state=opt_state)
    try:
        with_guard(sim, scenario, Unsynchronised)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def with_alarm(spec, federations, chunk):
    """A run on the GPU, and by function how often a steady round waits for it."""
    ledger = Ledger()
    ledger.first += WARM_UP * spec.settings.cuda_graphs

    def note(message, *place, **more):
        if "synchronizing" in str(message):
            ledger.wait("alarm")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with turning(ledger):
                outcome = simulate(spec, federations, CUDA, plan=Plan(len(federations), chunk))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return outcome, {where: round(count, 2) for (_, where), count in ledger.mean(ledger.waits).items()}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_gives_the_scores_of_the_cpu_and_waits_as_recorded(case, tmp_path):
    """Recorded on the pretended device; where seconds are measured the host waits on purpose, and the alarm is silent."""
    arguments = prepared(case, tmp_path)
    host, (device, waits) = on_cpu(*arguments), with_alarm(*arguments)
    if "bfloat16" not in case:  # which leaves too few digits for sums in another order
        assert_equal_scores(host.histories, device.histories)
    again, _ = with_alarm(*arguments)
    assert_equal_scores(device.histories, again.histories)
    expected: Counter[str] = Counter()
    for (reason, where), count in recorded_waits().get(case, {}).items():
        if reason != "synchronize":
            expected[where] += count
    assert waits == expected


class Recorded:
    """A CUDA graph without a GPU: notes every operation of a call and repeats exactly those, on the same tensors and in the same place.

    What Python does in between is not repeated, as in a replay.
    """

    made = 0

    def __init__(self, function, device, fellow):
        self.function, self.operations, self.result, self.calls = function, None, None, 0
        Recorded.made += 1

    def __call__(self):
        self.calls += 1
        if self.calls == 1:  # caches are filled
            return self.function()
        if self.operations is None:
            self.operations = []
            with Recorder(self.operations):
                self.result = self.function()
            return self.result
        with torch.no_grad():
            for func, args, kwargs, results in self.operations:
                again = func(*args, **kwargs)
                for old, new in zip(tensors(results), tensors(again), strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)
        return self.result


class Recorder(TorchDispatchMode):
    def __init__(self, operations):
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, result))
        return result


def tensors(result):
    return [x for x in (result if isinstance(result, tuple | list) else [result]) if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("method", [FedProx(mu=0.1), Scaffold(1.0, "mean_gradient", "uniform")], ids=["fedprox", "scaffold"])
def test_steps_to_which_a_method_adds_something_are_not_replayed(method, monkeypatch):
    monkeypatch.setattr("fgl_bench.engine.replay.Replay", Recorded)
    monkeypatch.setattr(Recorded, "made", 0)
    histories("cpu", method, synchronous(), cuda_graphs=True)
    assert not replays_steps(method) and not Recorded.made
