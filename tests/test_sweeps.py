"""Sweeps: killed and resumed, and spread over workers, give what a serial sweep gives."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fgl_bench.results.store import is_complete
from tests.warm import command, environment

SMALL = (
    "dataset=csbm", "dataset.num_nodes=240", "dataset.num_edges=520", "dataset.num_features=24", "dataset.words_per_node=6",
    "num_clients=4", "rounds=20", "seeds=[0,1]", "device=cpu", "threads=1", "progress=false",
)  # fmt: skip
TWELVE = ("-m", "algorithm=local,fedavg,fedprox,scaffold,fedgta,majority", "lr=0.01,0.02", *SMALL)
KILLS = 5


def runs(folder: Path) -> dict[str, Path]:
    """The run directories by where they lie; those under way are hidden."""
    found = {str(path.relative_to(folder)): path for path in folder.glob("*/*/*/*/*")}
    return {name: path for name, path in found.items() if not path.name.startswith(".")}


def numbers(run: Path) -> dict:
    """All that a run says, apart from times."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    matrices = {}
    if (run / "mixing.npz").is_file():
        with np.load(run / "mixing.npz") as file:
            matrices = {name: file[name].tolist() for name in file.files}
    kept = {key: value for key, value in summary.items() if key not in ("seconds", "finished", "code")}
    return {"summary": kept, "history": (run / "history.csv").read_text(encoding="utf-8"), "matrices": matrices}


@pytest.mark.nightly
def test_a_sweep_killed_five_times_gives_what_an_undisturbed_one_gives_and_runs_nothing_twice(tmp_path: Path) -> None:
    whole = command(tmp_path, *TWELVE, "results_dir=whole")
    assert whole.returncode == 0, whole.stderr
    expected = {name: numbers(path) for name, path in runs(tmp_path / "whole").items()}
    assert len(expected) == 12

    dice, results = random.Random(), tmp_path / "killed"
    line = [sys.executable, "-m", "fgl_bench.cli.main", *TWELVE, "results_dir=killed"]
    written: dict[str, bytes] = {}
    for kill in range(KILLS):
        before = len(runs(results))
        process = subprocess.Popen(
            line, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )  # fmt: skip
        end = time.monotonic() + 100
        # Somewhere in the run that follows one that was made, so that every kill strikes the work and not the start.
        while len(runs(results)) <= min(before + dice.randrange(2), 11) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(dice.uniform(0, 0.3))
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        assert process.wait(30) in (-signal.SIGKILL, 0), f"kill {kill}"
        now = runs(results)
        assert all(is_complete(path) for path in now.values()), "a torn run"
        for name, content in written.items():
            assert (now[name] / "summary.json").read_bytes() == content, f"{name} ran again after it was complete"
        written = {name: (path / "summary.json").read_bytes() for name, path in now.items()}

    resumed = command(tmp_path, *TWELVE, "results_dir=killed")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("complete already") == len(written)
    for name, content in written.items():
        assert (results / name / "summary.json").read_bytes() == content, f"{name} ran again after it was complete"
    assert {name: numbers(path) for name, path in runs(results).items()} == expected


@pytest.mark.nightly
def test_what_is_damaged_is_reported_kept_and_made_again(tmp_path: Path) -> None:
    line = ("algorithm=local", *SMALL)
    assert command(tmp_path, *line).returncode == 0
    [(name, run)] = runs(tmp_path / "results/runs").items()
    expected = numbers(run)
    torn = (run / "summary.json").read_bytes()[:-100]
    (run / "summary.json").write_bytes(torn)
    (run.parent / "notes.txt").write_text("mine", encoding="utf-8")
    again = command(tmp_path, *line)
    assert again.returncode == 0 and f"{run.name} is not used: not readable as json" in again.stderr
    assert numbers(run) == expected and (run.parent / "notes.txt").read_text(encoding="utf-8") == "mine"
    [kept] = run.parent.glob(f"{run.name}.kept-*")
    assert (kept / "summary.json").read_bytes() == torn


# ---- launchers

MIXED = ("-m", "algorithm=local,fedsa_gcl,fedgta", "scenario=sync", *SMALL)  # fedsa_gcl refuses this scenario
LAUNCHERS = {
    "workers": "hydra_plugins.hydra_joblib_launcher",
    "jobs": "hydra_plugins.hydra_submitit_launcher",
    "ray": "ray",
}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("serial")
    assert command(folder, *MIXED, "results_dir=runs").returncode == 1
    return {name: numbers(path) for name, path in runs(folder / "runs").items()}


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.nightly
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_workers_give_the_serial_numbers_and_a_failing_job_is_told_and_stops_nothing(
    launcher: str, serial: dict, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not installed(LAUNCHERS[launcher]):
        pytest.skip(f"hydra/launcher={launcher} needs a package that is not installed: pip install 'fgl-bench[dev]'")
    home = tmp_path_factory.mktemp("home")  # what a launcher keeps for its user goes here
    done = command(tmp_path, *MIXED, f"hydra/launcher={launcher}", "results_dir=runs", HOME=str(home))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "algorithm=fedsa_gcl supports only scenario=semi_async" in done.stderr, done.stderr
    assert {name: numbers(path) for name, path in runs(tmp_path / "runs").items()} == serial
    assert len(serial) == 2
    again = command(tmp_path, *MIXED[:1], "algorithm=local,fedgta", *MIXED[2:], "results_dir=runs")
    assert again.returncode == 0 and again.stdout.count("complete already") == 2


def test_what_will_be_refused_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    done = command(tmp_path, "-m", "algorithm=fedprox,fedsa_gcl", "lr=0.1,-1", "scenario=sync", *SMALL, "results_dir=runs")
    assert done.returncode == 1 and "lr=-1.0 is out of range; allowed: above 0" in done.stderr
    told = [line.partition("algorithm=")[2] for line in done.stdout.splitlines() if line.startswith("[")]
    assert told == ["fedprox lr=-1", "fedsa_gcl lr=0.1", "fedsa_gcl lr=-1", "fedprox lr=0.1"], done.stderr


@pytest.mark.skipif(installed(LAUNCHERS["workers"]), reason="the launcher is installed")
def test_a_launcher_that_is_not_installed_is_named_with_its_extra(tmp_path: Path) -> None:
    done = command(tmp_path, "-m", "hydra/launcher=workers", "algorithm=local,fedavg", *SMALL)
    assert done.returncode == 1 and "pip install 'fgl-bench[joblib]'" in done.stderr
