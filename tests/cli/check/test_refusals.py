"""What cannot be run is refused in one line, by check and by a run, and by every command that knows folders of one's own."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest
import torch
from omegaconf import OmegaConf

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.config.choices import config_folder
from fgl_bench.errors import PACKAGE, raised_by_user
from fgl_bench.runner.validation import validate
from fgl_bench.scenarios.hooks import HOOKS, check_hooks
from tests.test_commands import GOOD, METHOD, METHODS, MIX, written

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
    "no_scenario": (f"{GOOD}\n    scenarios = ()", "NoScenario.scenarios is empty; it must name at least one scenario, such as ('sync',)"),
    "a_word_of_scenarios": (f"{GOOD}\n    scenarios = 'sync'", "scenarios is 'sync'; it must name at least one scenario"),
    "serves_in_rounds": (
        GOOD + SERVE,
        "ServesInRounds.serve is never called: ServesInRounds.scenarios is ('sync',), and only scenario=semi_async calls serve",
    ),
    "refines_without_server": (
        f"{GOOD}\n    scenarios = ('decentralized',)\n    def refine(self, previous, received, trained, arrived):\n        return received",
        "RefinesWithoutServer.scenarios is ('decentralized',), and only scenario=sync calls refine",
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
        f"{GOOD}\n    def refine(self, received, trained, arrived):\n        return received",
        "RefinesTooLittle.refine(self, received, trained, arrived) is called with (self, previous, received, trained, arrived)",
    ),
    "refines_nothing": (
        f"{GOOD}\n    def refine(self, previous, received, trained, arrived):\n        pass",
        "refine() returned None; expected [S, C, P] = [2, 4, ",
    ),
    "exchanges_nothing": (
        f"{GOOD}\n    scenarios = ('decentralized',)\n    def exchange(self, meeting):\n        pass",
        "exchange() returned None; expected an Exchange",
    ),
    "serves_nothing": (
        "\n    scenarios = ('semi_async',)\n    def serve(self, server, arrivals):\n        pass",
        "serve() returned None; expected a list of messages",
    ),
    "raises_in_mix": (
        "\n    def mix(self, reports, arrived):\n        raise ValueError('two\\nlines')",
        "own_raises_in_mix.py:14 in mix: ValueError: two",
    ),
    "leaves_in_mix": (
        "\n    def mix(self, reports, arrived):\n        raise SystemExit(0)",
        "own_leaves_in_mix.py:14 in mix: SystemExit: 0",
    ),
}


@pytest.mark.parametrize("way", ["check", "run"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_one_line(name, way, tmp_path, spoken):
    body, words = REFUSED[name]
    own = f"own_{name}_{way}"
    cls = "".join(map(str.title, name.split("_")))
    (tmp_path / f"{own}.py").write_text(METHOD.format(name=cls, body=body.lstrip()), encoding="utf-8")
    scenario = re.search(r"scenarios = \('(\w+)'", body)
    target = ["algorithm=fedavg", f"algorithm._target_={own}.{cls}", f"scenario={scenario[1] if scenario else 'sync'}", *TINY]
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
    assert status == 1 and said.splitlines()[-1].endswith("own_raises_apart.py:14 in mix: ValueError: apart") and "Traceback" not in said


def test_the_whole_traceback_is_a_variable_away(tmp_path, spoken, monkeypatch):
    written(tmp_path, "raises_aloud", "\n    def mix(self, reports, arrived):\n        raise ValueError('aloud')")
    monkeypatch.setenv("FGL_BENCH_DEBUG", "1")
    status, _, said = spoken(*["check", "own_raises_aloud.py"])
    assert status == 1 and "Traceback" in said and "scenarios/sync.py" in said


def test_an_error_of_the_package_itself_is_not_put_on_the_user():
    with pytest.raises(AttributeError) as caught:
        validate(None)
    assert raised_by_user(caught.value) is None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_hooks_of_the_package_s_methods_are_called(name):
    module, _, cls = OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")._target_.rpartition(".")
    method = getattr(importlib.import_module(module), cls)
    check_hooks(method)
    assert set(method.scenarios) <= set(HOOKS)


def test_the_table_of_hooks_is_what_scenarios_call():
    for scenario, hooks in HOOKS.items():
        assert all(hasattr(Algorithm, hook) for hook in hooks)
        text = "".join(
            (PACKAGE / "scenarios" / f"{part}.py").read_text(encoding="utf-8")
            for part in ("base", scenario)
            if (scenario, part) != ("semi_async", "base")
        )
        if scenario == "decentralized":
            text += inspect.getsource(Algorithm.exchange)
        called = set(re.findall(r"(?:algorithm|method|self)\.(\w+)", text)) & {hook for others in HOOKS.values() for hook in others}
        assert called == set(hooks), scenario


def test_commands_know_the_folders_of_config_dir(tmp_path, spoken):
    folder = tmp_path / "mine dir"
    spoken(*["cp", "fedprox", str(folder)])
    for options in (["--config-dir", str(folder)], [f"--config-dir={folder}"]):
        status, said, _ = spoken(*[*options, "check", "my_fedprox", "algorithm.mu=0.5"])
        assert status == 0 and said.endswith("my_fedprox: keeps all promises\n")
        assert "my_fedprox " in spoken(*[*options, "ls", "algorithm"])[1]
        assert "mu: 0.01" in spoken(*[*options, "show", "my_fedprox"])[1]
    status, said, _ = spoken(*[*options, "cp", "my_fedprox", "again"])
    assert status == 0 and "again/algorithm/my_my_fedprox.yaml" in said
    status, _, said = spoken(*["--config-dir", "nowhere", "ls"])
    assert status == 1 and said == "fgl-bench: error: --config-dir nowhere: there is no such folder\n"


def test_a_method_of_one_s_own_is_tuned(tmp_path, spoken):
    pytest.importorskip("optuna", reason="needs the tune extra")
    body = METHODS["with_a_key"][0]
    written(tmp_path, "tuned", body)
    (tmp_path / "mine/algorithm").mkdir(parents=True)
    (tmp_path / "mine/algorithm/own.yaml").write_text("_target_: own_tuned.Tuned\npower: 1.0\n", encoding="utf-8")
    small = [*TINY, f"results_dir={tmp_path / 'runs'}", "trials=2"]
    (tmp_path / "space.yaml").write_text('"+algorithm.power": {choices: [0.5, 2.0]}\n', encoding="utf-8")
    target = ["algorithm=fedavg", "algorithm._target_=own_tuned.Tuned"]
    status, said, _ = spoken(*["tune", "space.yaml", *target, *small])
    assert status == 0 and "best of 2" in said
    (tmp_path / "space.yaml").write_text("algorithm.power: {choices: [0.5, 2.0]}\n", encoding="utf-8")
    status, said, _ = spoken(*["--config-dir", "mine", "tune", "space.yaml", "algorithm=own", *small])
    assert status == 0 and "fgl-bench --config-dir mine algorithm=own" in said
