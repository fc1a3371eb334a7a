"""What cannot be run is refused in one line, by check and by a run, and by every command that knows folders of one's own."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest
import torch
from omegaconf import OmegaConf

from fgl_bench.config.choices import config_folder
from fgl_bench.errors import PACKAGE, raised_by_user
from fgl_bench.runner.validation import validate
from fgl_bench.scenarios.base import Rounds
from fgl_bench.scenarios.decentralized import Decentralized
from fgl_bench.scenarios.hooks import OWNERS, SCENARIOS, check_hooks, hooks, supported
from fgl_bench.scenarios.semi_async import SemiAsync
from fgl_bench.scenarios.sync import Sync
from tests.test_commands import GOOD, METHOD, MIX, bases, written

CONF = config_folder()
ALGORITHMS = sorted(path.stem for path in (CONF / "algorithm").glob("[!_]*.yaml"))
TINY = (
    "dataset=csbm",
    "dataset.num_nodes=120",
    "dataset.num_edges=240",
    "seeds=[0,1]",
    "trips=8",
    "num_clients=4",
    "progress=false",
    "seeds_per_chunk=2",
)
SERVE = "\n    def serve(self, server, arrivals):\n        return []\n"
REFUSED = {
    "no_scenario": (
        "\n    # Algorithm\n    trains = True",
        "NoScenario runs under no scenario; it must derive from ServerRounds (scenario=sync) or Peers (scenario=decentralized) or "
        "SemiAsyncServer (scenario=semi_async)",
    ),
    "forgets_to_mix": ("\n    trains = True", "ForgetsToMix.mix is missing; ServerRounds (scenario=sync) needs it"),
    "forgets_to_exchange": (
        "\n    # Peers\n    trains = True",
        "ForgetsToExchange.exchange is missing; Peers (scenario=decentralized) needs it",
    ),
    "forgets_a_power": ("\n    # ServerRounds, ServerNodes\n" + GOOD, "ForgetsAPower.observe is missing; ServerNodes needs it"),
    "serves_in_rounds": (
        GOOD + SERVE,
        "ServesInRounds.serve is never called: serve is a hook of SemiAsyncServer (scenario=semi_async), and ServesInRounds derives from "
        "ServerRounds (scenario=sync)",
    ),
    "refines_without_server": (
        "\n    # Peers\n    def refine(self, previous, received, uploaded, arrived):\n        return received",
        "RefinesWithoutServer.refine is never called: refine is a hook of ServerRounds (scenario=sync), and RefinesWithoutServer derives "
        "from Peers (scenario=decentralized)",
    ),
    "stages_without_the_power": (
        f"{GOOD}\n    def stage(self, number, received):\n        return None",
        "StagesWithoutThePower.stage is never called: stage is a hook of Staging, and StagesWithoutThePower derives from ServerRounds",
    ),
    "mixes_flat": (
        MIX.format(weights="torch.ones(4, 4) / 4"),
        "mix() returned [C, C] = [4, 4]; expected [S, C, C] or [S, 1, C] = [2, 4, 4] or [2, 1, 4]",
    ),
    "mixes_nothing": ("\n    def mix(self, reports, arrived):\n        pass", "mix() returned None; expected a Mixing"),
    "penalises_one": (
        f"{GOOD}\n    def local_penalty(self, step):\n        return step.theta.sum()",
        "local_penalty() returned []; expected [k] = [8]",
    ),
    "loses_many": (
        f"{GOOD}\n    def local_loss(self, step):\n        return step.theta.sum(1)",
        "local_loss() returned [k] = [8]; expected a scalar",
    ),
    "corrects_nothing": (
        f"{GOOD}\n    def correct_gradient(self, step, gradient):\n        pass",
        "correct_gradient() returned None; expected [k, P] = [8, ",
    ),
    "reports_nothing": (f"{GOOD}\n    def report(self, trips):\n        pass", "report() returned None; expected tensors by name"),
    "reports_one": (
        f"{GOOD}\n    def report(self, trips):\n        return {{'norm': trips.trained.norm()}}",
        "report() returned 'norm' = []; expected a tensor with k = 8 rows",
    ),
    "refines_too_little": (
        f"{GOOD}\n    def refine(self, received, uploaded, arrived):\n        return received",
        "RefinesTooLittle.refine(self, received, uploaded, arrived) is called with (self, previous, received, uploaded, arrived)",
    ),
    "uploads_nothing": (
        f"{GOOD}\n    def upload(self, rows, received, trained):\n        pass",
        "upload() returned None; expected [k, P] = [8, ",
    ),
    "uploads_one": (
        "\n    # SemiAsyncServer\n    def upload(self, rows, received, trained):\n        return trained[0]\n" + SERVE,
        "upload() returned [P] = [",
    ),
    "begins_with_nothing": (
        "\n    # SemiAsyncServer\n    def begin(self, message, trained, reports):\n        pass\n\n    def serve(self, server, arrivals):\n"
        "        return [Message(upload.client, server.model) for upload in arrivals]\n",
        "begin() returned None; expected [P] = [",
    ),
    "initializes_one": (
        f"{GOOD}\n    def initialize(self, initial):\n        return initial[0]",
        "initialize() returned [P] = [",
    ),
    "refines_nothing": (
        f"{GOOD}\n    def refine(self, previous, received, uploaded, arrived):\n        pass",
        "refine() returned None; expected [S, C, P] = [2, 4, ",
    ),
    "exchanges_nothing": (
        "\n    # Peers\n    def exchange(self, meeting):\n        pass",
        "exchange() returned None; expected an Exchange",
    ),
    "serves_nothing": (
        "\n    # SemiAsyncServer\n    def serve(self, server, arrivals):\n        pass",
        "serve() returned None; expected a list of messages",
    ),
    "raises_in_mix": (
        "\n    def mix(self, reports, arrived):\n        raise ValueError('two\\nlines')",
        "own_raises_in_mix.py:18 in mix: ValueError: two",
    ),
    "leaves_in_mix": (
        "\n    def mix(self, reports, arrived):\n        raise SystemExit(0)",
        "own_leaves_in_mix.py:18 in mix: SystemExit: 0",
    ),
}


@pytest.mark.parametrize("way", ["run", pytest.param("check", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_one_line(name, way, tmp_path, spoken):
    body, words = REFUSED[name]
    own = f"own_{name}_{way}"
    cls = "".join(map(str.title, name.split("_")))
    (tmp_path / f"{own}.py").write_text(METHOD.format(name=cls, bases=bases(body), body=body.lstrip()), encoding="utf-8")
    scenario = {"Peers": "decentralized", "SemiAsyncServer": "semi_async"}.get(bases(body), "sync")
    target = ["algorithm=fedavg", f"algorithm._target_={own}.{cls}", f"scenario={scenario}", *TINY]
    status, _, said = spoken(*(["check", f"{own}.py"] if way == "check" else target))
    lines = [line for line in said.splitlines() if not line.startswith("warning:")]
    assert status == 1 and len(lines) == 1 and "Traceback" not in said, said
    assert words.replace(f"own_{name}", own) in lines[0] and not (tmp_path / "results").exists(), said


@pytest.mark.parametrize("arguments", [["check", "own_leaving.py"], ["algorithm=fedavg", "algorithm._target_=own_leaving.Leaving", *TINY]])
def test_a_module_that_leaves_the_program_is_an_error(arguments, tmp_path, spoken):
    (tmp_path / "own_leaving.py").write_text("import sys\n\nsys.exit(0)\n", encoding="utf-8")
    status, _, said = spoken(*arguments)
    assert status == 1 and "cannot be imported (" in said and "own_leaving.py:3: SystemExit: 0)" in said and len(said.splitlines()) == 1


def test_a_process_that_trains_some_seeds_tells_the_users_line_too(tmp_path, spoken):
    written(tmp_path, "raises_apart", "\n    def mix(self, reports, arrived):\n        raise ValueError('apart')")
    target, threads = ["algorithm=fedavg", "algorithm._target_=own_raises_apart.RaisesApart", *TINY], torch.get_num_threads()
    try:
        status, _, said = spoken(*target[:-1], "seeds_per_chunk=1", "threads=2")
    finally:
        torch.set_num_threads(threads)
    assert status == 1 and said.splitlines()[-1].endswith("own_raises_apart.py:18 in mix: ValueError: apart") and "Traceback" not in said


def test_an_error_of_the_package_itself_is_not_put_on_the_user():
    with pytest.raises(AttributeError) as caught:
        validate(None)
    assert raised_by_user(caught.value) is None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_hooks_of_the_package_s_methods_are_called(name):
    module, _, cls = OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")._target_.rpartition(".")
    method = getattr(importlib.import_module(module), cls)
    for base in method.__mro__:
        if issubclass(base, tuple(SCENARIOS)) and base not in OWNERS and not inspect.isabstract(base):
            check_hooks(base)
    assert supported(method)


def test_scenarios_call_the_hooks_of_their_contract_and_no_others():
    """Or the base calls them itself."""
    for scenario in (Sync, Decentralized, SemiAsync):
        files = ["simulation", *(["base"] if issubclass(scenario, Rounds) else []), scenario.__module__.rpartition(".")[2]]
        text = "".join((PACKAGE / "scenarios" / f"{file}.py").read_text(encoding="utf-8") for file in files)
        called = set(re.findall(r"(?:algorithm|method)\.(\w+)", text))
        own = hooks(scenario.contract)
        others = {hook for base in SCENARIOS for hook in hooks(base)} - set(own) - {"warmup_rounds"}
        assert set(own) <= called and not called & others, scenario
