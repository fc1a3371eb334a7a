"""Runs that are compared differ in what was asked for: an algorithm chooses its scenario, and nothing else."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fgl_bench.config.choices import config_folder
from fgl_bench.config.compose import Composer
from fgl_bench.config.groups import build, label
from fgl_bench.config.pairing import paired
from fgl_bench.errors import UserError
from fgl_bench.results import choose
from fgl_bench.results.frame import Result
from fgl_bench.runner.validation import validate
from fgl_bench.scenarios.hooks import supported
from tests.warm import command

ALGORITHMS = sorted(path.stem for path in (config_folder() / "algorithm").glob("*.yaml"))
EXPERIMENTS = config_folder() / "experiment"
PRESETS = sorted(path.relative_to(EXPERIMENTS).with_suffix("").as_posix() for path in EXPERIMENTS.glob("*/[!_]*.yaml"))
TINY = (
    "dataset.num_nodes=120", "dataset.num_edges=260", "dataset.num_features=24", "dataset.words_per_node=6", "num_clients=3",
    "rounds=2", "seeds=[0]", "progress=false", "threads=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def composed():
    composer = Composer()
    yield composer


@pytest.fixture(scope="module")
def on_defaults(composed):
    return cache(lambda algorithm: composed([f"algorithm={algorithm}"]))


@pytest.fixture(scope="module")
def usual(on_defaults):
    return OmegaConf.to_container(on_defaults("fedavg"), resolve=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_chooses_its_scenario_and_nothing_else(algorithm, on_defaults, usual):
    cfg = on_defaults(algorithm)
    chosen = OmegaConf.to_container(cfg, resolve=True)
    assert chosen.keys() == usual.keys()
    assert [key for key in usual if chosen[key] != usual[key] and key not in ("algorithm", "scenario")] == []
    assert label(cfg, "scenario") == supported(type(build(cfg.algorithm)))[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_runs_on_the_defaults_or_names_the_command_that_does(algorithm, on_defaults, composed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        validate(on_defaults(algorithm))
    except UserError as refusal:
        said, _, tried = str(refusal).partition("; try: fgl-bench ")
        assert said.startswith(f"algorithm={algorithm}: needs ") and "\n" not in said
        assert tried.startswith(f"algorithm={algorithm} ")
        validate(composed(shlex.split(tried)))


@pytest.mark.audit
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_runs_as_it_is(preset, composed, tmp_path):
    cfg = composed([f"experiment={preset}", *(["algorithm=fedaas"] if preset.startswith("fedaas") else []), f"results_dir={tmp_path}"])
    validate(cfg)


def test_the_command_that_a_refusal_offers_runs(tmp_path):
    refused = command(tmp_path, "algorithm=fedaas", "model=gcn", "model.hidden=8", "algorithm.batches=2", *TINY)
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1
    offered = shlex.split(refused.stderr.partition("; try: fgl-bench ")[2])
    assert offered[:3] == ["algorithm=fedaas", "split=iid_server", "model=gat"] and "algorithm.batches=2" in offered
    done = command(tmp_path, *offered)
    assert done.returncode == 0, done.stderr


def test_choices_take_the_place_of_what_was_said_of_the_same_groups():
    given = ["dataset=cora", "algorithm=fedaas", "model=gcn", "model.hidden=8", "+split.x=1", "lr=0.1"]
    expected = ["dataset=cora", "algorithm=fedaas", "model=gat", "split=iid_server", "lr=0.1"]
    assert paired(given, {"model": "gat", "split": "iid_server"}) == expected
    assert paired(["lr=0.1"], {"model": "gat"}) == ["model=gat", "lr=0.1"]


@pytest.mark.nightly
def test_a_sweep_says_in_what_else_its_runs_differ(tmp_path):
    alike = command(tmp_path, "-m", "algorithm=fedavg,fed_pub", "lr=0.1,0.01", *TINY)
    assert alike.returncode == 0 and "differ" not in alike.stderr, alike.stderr
    other = command(tmp_path, "-m", "algorithm=fedavg,fedsa_gcl", *TINY)
    assert other.returncode == 0
    [line] = [line for line in other.stderr.splitlines() if "differ" in line]
    assert line == "note: these runs differ in more than algorithm: scenario=sync (fedavg), semi_async (fedsa_gcl)"
    [models] = {summary["model"] for summary in map(json.loads, (path.read_text() for path in Path(tmp_path).rglob("summary.json")))}
    assert models == "gcn"


def test_differences_are_what_no_swept_key_explains():
    def differences(summaries, swept):
        return choose.differences([Result(Path(), summary) for summary in summaries], swept)

    def run(algorithm: str, **changes) -> dict:
        config = {"lr": 0.1, "num_clients": 4, "rounds": 5, "trips": 20, "algorithm": {"_target_": algorithm}}
        config |= {"model": {"_target_": "gcn", "hidden": 8}, "scenario": {"sparsity": {"rate": 0.1}}, **changes.pop("config", {})}
        names = {"algorithm": algorithm, "model": config["model"]["_target_"], "scenario": "sync", "sparsity": "label"}
        names |= {"dataset": "d", "split": "s", "versions": {"torch": "2.13"}, "code": {"commit": "a" * 40}}
        return {**names, "config": config, **changes}

    assert differences([run("x"), run("y")], {"algorithm"}) == []
    assert differences([run("x"), run("y", config={"lr": 0.2})], {"algorithm"}) == ["lr=0.1 (x), 0.2 (y)"]
    assert differences([run("x"), run("x", config={"num_clients": 8, "trips": 40})], {"num_clients"}) == []
    wider = {"model": {"_target_": "gcn", "hidden": 16}}
    assert differences([run("x"), run("y", config=wider)], {"algorithm"}) == ["model.hidden=8 (x), 16 (y)"]
    assert differences([run("x"), run("y", config=wider)], {"algorithm", "model.hidden"}) == []
    gat = {"model": {"_target_": "gat", "hidden": [8], "heads": 1}}
    assert differences([run("x"), run("y", config=gat)], {"algorithm"}) == ["model=gcn (x), gat (y)"]
    assert differences([run("x"), run("x", config=gat)], {"model"}) == []
    sparse = {"scenario": {"sparsity": {"rate": 0.5}}}
    assert differences([run("x"), run("x", config=sparse, sparsity="none")], {"scenario.sparsity"}) == []
    assert differences([run("x"), run("x", config=sparse)], {"lr"}) == ["scenario.sparsity.rate=0.1 (x), 0.5 (x)"]
    later = run("y", versions={"torch": "2.14"}, code=None)
    assert differences([run("x"), later], {"algorithm"}) == ["version of torch=2.13 (x), 2.14 (y)", f"commit={'a' * 12} (x), None (y)"]
    assert differences([run("x"), later], {"experiment"}) == []
    cpus = run("x", device="CPU x86_64, 1 thread(s)"), run("y", device="CPU x86_64, 2 thread(s)")
    assert differences(cpus, {"algorithm"}) == []
    assert differences([cpus[0], run("y", device="NVIDIA H100")], {"algorithm"}) == ["device=CPU (x), NVIDIA H100 (y)"]
