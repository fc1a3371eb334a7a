"""What a scenario carries: a fresh simulation that is given it in the middle of a run ends with the same bits."""

from __future__ import annotations

import collections
import functools
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.powers import federated
from fgl_bench.runner.build import simulation
from fgl_bench.runner.memory import network
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import RunSpec
from fgl_bench.scenarios.base import Rounds
from fgl_bench.scenarios.checkpoint import SimulationState, Unstorable
from fgl_bench.scenarios.simulation import ScenarioState, Simulation, StepCallback
from tests.device_cases import CASES, SMALL, VARIANTS, settings
from tests.pretend_cuda import spec_of

CPU = torch.device("cpu")
ALIKE = (
    "bfloat16",
    "auc",
    "heads",
    "dropouts",
    "bits",
    "lian",
    "detached",
    "features",
    "reset",
    "momentum",
    "moments",
    "elbo half",
    "chunk reset",
    "graphs",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


def programs(case: str, folder: Path) -> tuple[RunSpec, Any]:
    """The run of a case, and a function that makes a fresh simulation of it."""
    words, chunk = settings(case)
    spec = spec_of([*SMALL, "mixing_at=[8,16,20]", *words, f"cache_dir={folder}"])
    federations = federated(spec.fresh_algorithm(), prepare(spec))

    def fresh() -> Simulation:
        model, drops = network(spec, federations, CPU), spec.scenario.drops_uploads
        made = spec.fresh_algorithm()
        return simulation(spec.settings, federations, model, made, CPU, spec.rounds, spec.trips, chunk, drops, spec.optimizer)

    return spec, fresh


def results(sim: Simulation) -> dict[str, Any]:
    """Everything that a run stores, but for the time that it took."""
    costs = {name: spent for name, spent in sim.costs.items() if name != "computation_seconds"}
    return {
        "log": sim.log.read(), "losses": sim.losses.read(), "mixing": sim.mixing, "similarity": sim.similarity, "costs": costs,
        "final": sim.final_state, "exchanged": sim.exchanged,
        "points": [[vars(point) for point in points] for points in sim.points],
    }  # fmt: skip


def same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, list):
        for pair in zip(one, other, strict=True):
            same(*pair)
    else:
        np.testing.assert_array_equal(one, other)


TRIED = [case for case in VARIANTS if not case.endswith(ALIKE)]
SOON = ("adafgl half", "fedssa half", "moon half", "fedsage_plus fedgta", "fedgl pseudo graph", "fedsa_gcl atomic", "dfed_sst links",
        "fedavg on disk chunk", "fedavg served", "unifilter rates")  # fmt: skip


@pytest.mark.parametrize("case", [case if case in SOON else pytest.param(case, marks=pytest.mark.nightly) for case in TRIED])
def test_a_fresh_run_resumes_from_a_checkpoint(case: str, folder: Path, tmp_path: Path) -> None:
    """With a part of the clients, in chunks, after a change of network or of graphs; `fgl-bench check` tries every method whole."""
    spec, fresh = programs(case, folder)
    whole, taken, steps = fresh(), [], []
    state, half = SimulationState(whole), spec.rounds // 2 if isinstance(spec.scenario, Rounds) else spec.trips

    class Saving(StepCallback):
        def step_end(self, sim: Simulation, scenario: ScenarioState) -> None:
            if scenario.done >= half and not taken:
                state.save(scenario.state(), tmp_path / "state.pt")
                taken.append(scenario.done)

    class Counting(StepCallback):
        def step_end(self, sim: Simulation, scenario: ScenarioState) -> None:
            steps.append(scenario.done)

    whole.callbacks = [Saving()]
    spec.scenario.run(whole)
    again = fresh()
    again.callbacks = [Counting()]
    SimulationState(again).load(tmp_path / "state.pt")
    spec.scenario.run(again)
    assert steps and min(steps) > taken[0], "steps before the checkpoint are not repeated"
    same(results(again), results(whole))


@pytest.mark.parametrize("method", ["fedavg", "fedbuff", "d_psgd"])
def test_a_run_that_resumes_after_its_virtual_time_makes_no_further_step(
    method: str, folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(CASES, "timed", f"algorithm={method} scenario.slow_fraction=0.5 virtual_time=2.5")
    spec, fresh = programs("timed", folder)
    whole, steps = fresh(), []
    state = SimulationState(whole)

    class Saving(StepCallback):
        def step_end(self, sim: Simulation, scenario: ScenarioState) -> None:
            state.save(scenario.state(), tmp_path / "state.pt")
            steps.append(scenario.done)

    whole.callbacks = [Saving()]
    spec.scenario.run(whole)
    assert 0 < max(steps) < (spec.rounds if isinstance(spec.scenario, Rounds) else spec.trips), "ended by the clock"
    again, before = fresh(), len(steps)
    again.callbacks = [Saving()]
    SimulationState(again).load(tmp_path / "state.pt")
    spec.scenario.run(again)
    assert set(steps[before:]) <= {max(steps[:before])}
    same(results(again), results(whole))


def test_attributes_of_a_method_come_back_with_what_they_share(folder: Path, tmp_path: Path) -> None:
    sim, again = (programs("fedavg chunk", folder)[1]() for _ in range(2))
    method: Any = sim.algorithm
    method.base = torch.zeros(3, 4)
    method.row, method.weights, method.lines = method.base[1], sim.setting.weights, collections.deque([1, 2], 3)
    method.counts, method.activation = (
        collections.defaultdict(list, a=[1]),
        functools.partial(torch.nn.functional.leaky_relu, negative_slope=0.3),
    )
    method.draws = [torch.Generator().manual_seed(1), np.random.default_rng(2), random.Random(3)]
    method.network = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.ReLU())
    method.optimizer_of_network = torch.optim.Adam(method.network.parameters())

    def step(method: Any) -> list[float]:
        method.optimizer_of_network.zero_grad()
        loss = method.activation(method.network(torch.ones(2, 3)) - 1).square().sum()
        loss.backward()
        method.optimizer_of_network.step()
        torch_draws, numpy_draws, draws = method.draws
        return [loss.item(), torch.rand(1, generator=torch_draws).item(), numpy_draws.random(), draws.random()]

    step(method)
    SimulationState(sim).save(None, tmp_path / "state.pt")
    SimulationState(again).load(tmp_path / "state.pt")
    found: Any = again.algorithm
    assert [step(found) for _ in range(3)] == [step(method) for _ in range(3)]
    found.base += 1
    assert found.row.eq(1).all() and found.weights is again.setting.weights
    assert found.lines == method.lines and found.lines.maxlen == 3 and found.counts["b"] == []


@pytest.mark.parametrize("value", [iter([1]), lambda: 0, os.system], ids=["iterator", "lambda", "system"])
def test_what_cannot_be_stored_is_named(value: Any, folder: Path, tmp_path: Path) -> None:
    sim: Any = programs("fedavg chunk", folder)[1]()
    sim.algorithm.own = {"here": value}
    with pytest.raises(Unstorable, match=r"^method.own \("):
        SimulationState(sim).save(None, tmp_path / "state.pt")
