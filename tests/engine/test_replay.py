"""Replayed steps on a torch.cuda that only notes what it is told."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.replay import WARM_UP, Replay
from fgl_bench.scenarios.checkpoint import SimulationState
from fgl_bench.scenarios.simulation import StepCallback
from tests.algorithms.test_fedssa import method as fedssa
from tests.algorithms.test_fedssa import unifilter
from tests.small_runs import synchronous
from tests.test_cuda import made


class FakeGraph:
    def __init__(self):
        self.device, self.own, self.replays = None, object(), 0

    def pool(self):
        return self.own

    def replay(self):
        self.replays += 1
        assert self.device == FakeCuda.current


class FakeCuda:
    """Of two devices, as torch.cuda is of the current one."""

    current = torch.device("cuda:0")
    captured: list[tuple[torch.device, FakeGraph]]

    def __init__(self):
        FakeCuda.captured = []

    CUDAGraph = FakeGraph

    @contextmanager
    def device(self, device):
        before, FakeCuda.current = FakeCuda.current, device
        yield
        FakeCuda.current = before

    @contextmanager
    def graph(self, graph, pool=None):
        graph.device, graph.own = FakeCuda.current, pool or graph.own
        FakeCuda.captured.append(graph)
        yield

    @contextmanager
    def stream(self, stream):
        assert stream.device == FakeCuda.current
        yield

    def current_stream(self):
        return SimpleNamespace(device=FakeCuda.current, wait_stream=lambda other: None)

    Stream = current_stream


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    for name in ("device", "graph", "stream", "current_stream", "Stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    return fake


def test_steps_run_where_their_tensors_are(cuda):
    where, second = [], torch.device("cuda:1")
    replay = Replay(lambda: where.append(FakeCuda.current), second)
    for _ in range(WARM_UP + 3):
        replay()
    assert where == [second] * (WARM_UP + 1), "warm-up and capture; then Python does not run"
    assert [(graph.device, graph.replays) for graph in cuda.captured] == [(second, 3)]
    assert FakeCuda.current == torch.device("cuda:0")


def test_steps_of_a_trainer_share_their_memory_which_goes_with_it(cuda):
    sim, _ = made("cpu", FedAvg(), synchronous(), rounds=WARM_UP + 3, cuda_graphs=True)
    synchronous().run(sim)
    assert len(cuda.captured) == 3, "one for each of the two local epochs, and one for the scores"
    assert len({graph.pool() for graph in cuda.captured}) == 1
    trainer = weakref.ref(sim.trainer)
    gc.disable()
    try:
        del sim
        assert trainer() is None, "without the collector"
    finally:
        gc.enable()


def test_a_checkpoint_leaves_graphs_out(cuda, tmp_path):
    sim, _ = made("cpu", fedssa(), synchronous(), rounds=WARM_UP + 3, model=unifilter(), cuda_graphs=True)
    state, done = SimulationState(sim), []

    class Saving(StepCallback):
        def step_end(self, sim, rounds):
            state.save(rounds.state(), tmp_path / "state.pt")
            done.append(rounds.done)

    sim.callbacks = [Saving()]
    synchronous().run(sim)
    assert isinstance(sim.algorithm._renew, Replay) and cuda.captured and len(done) == WARM_UP + 3
    assert "_renew" not in state.state(None)["method"]
