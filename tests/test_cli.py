"""The command as a person types it: every bad input is one clear line, and nothing is left behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fgl_bench.cli.arguments import keys_of_swept_groups, options_first
from fgl_bench.runner.workers import forks
from tests.warm import command, environment

ROOT = Path(__file__).parents[1]
TINY = ("dataset=csbm", "seeds=[0]", "trips=8", "num_clients=4", "progress=false")


def refused(folder: Path, *arguments: str) -> str:
    """The one line that refuses the arguments; checks that it is one, and that the folder is as it was."""
    before = sorted(folder.rglob("*"))
    result = command(folder, *arguments)
    assert result.returncode == 1, result.stdout
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) <= 4, result.stderr
    assert sorted(folder.rglob("*")) == before
    return result.stderr


def test_help_names_every_choice_and_every_key(tmp_path: Path) -> None:
    result = command(tmp_path, "--help")
    assert result.returncode == 0 and not list(tmp_path.iterdir())
    for path in (ROOT / "conf").glob("[admst]*/*.yaml"):
        assert re.search(rf"\b{path.stem}\b", result.stdout), path
    keys = re.findall(r"^(\w+):", (ROOT / "conf/config.yaml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for key in set(keys) - {"defaults", "hydra"}:
        assert re.search(rf"^  {key} +\w", result.stdout, flags=re.MULTILINE), f"{key} has no comment in conf/config.yaml"
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_help_lists_choices_of_a_folder_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "own/algorithm").mkdir(parents=True)
    (tmp_path / "own/algorithm/mine.yaml").touch()
    lines = r"^  algorithm .*(\n {12}.*)*\bmine\b"  # a long list goes on in indented lines
    assert re.search(lines, command(tmp_path, "--config-dir", "own", "--help").stdout, flags=re.MULTILINE)


def test_cfg_job_is_yaml_that_composes_to_itself(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    first = command(tmp_path, "--cfg", "job", "algorithm=fedprox", "algorithm.mu=0.25").stdout
    cfg = OmegaConf.create(first)
    assert cfg.algorithm.mu == 0.25 and cfg.seeds == [0, 1, 2, 3, 4]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--help"], ["metrics=[hits]"], ["--cfg", "job"]])
def test_answers_before_a_run_load_no_heavy_library(arguments: list[str], tmp_path: Path) -> None:
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('HEAVY', sorted({'torch', 'torch_geometric', 'scipy', 'pandas'} & set(sys.modules))))\n"
        "from fgl_bench.cli.main import main\n"
        "main()\n"
    )
    line = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(line, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "HEAVY []"


def test_a_run_writes_its_run_directory_and_nothing_else(tmp_path: Path) -> None:
    result = command(tmp_path, "algorithm=local", *TINY)
    assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "results/runs/csbm/metis-4/sync/local").glob("*/summary.json"))) == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"results", "cache"}


def test_sweep_goes_on_after_a_failing_job_and_ends_with_an_error(tmp_path: Path) -> None:
    result = command(tmp_path, "-m", "algorithm=local,fedsa_gcl,majority", "scenario=sync", *TINY)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "algorithm=fedsa_gcl supports only scenario=semi_async" in result.stderr
    done = {path.parts[-3] for path in (tmp_path / "results").rglob("summary.json")}
    assert done == {"local", "majority"}
    assert {path.name for path in tmp_path.iterdir()} <= {"results", "cache"}, "Hydra left something behind"


def test_own_method_by_target_or_by_own_yaml_needs_no_change_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "toy_method.py").write_text(
        "from dataclasses import dataclass\n"
        "from fgl_bench.algorithms.fedavg import FedAvg\n\n"
        "@dataclass\nclass Toy(FedAvg):\n    alpha: float\n",
        encoding="utf-8",
    )
    group = tmp_path / "own/algorithm"
    group.mkdir(parents=True)
    (group / "toy.yaml").write_text("_target_: toy_method.Toy\nalpha: 1\n", encoding="utf-8")
    target = "algorithm._target_=toy_method.Toy"
    assert command(tmp_path, "algorithm=fedavg", target, "+algorithm.alpha=2", *TINY).returncode == 0
    assert command(tmp_path, "--config-dir", "own", "algorithm=toy", *TINY).returncode == 0
    assert len(list(tmp_path.glob("results/runs/csbm/metis-4/sync/toy/*/summary.json"))) == 2
    assert "algorithm.alpha is missing; Toy has alpha" in refused(tmp_path, "algorithm=fedavg", target)


@pytest.mark.skipif(not forks(), reason="programs are threads here")
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_processes_that_train_seeds_end_with_a_killed_run(tmp_path: Path, number: int) -> None:
    line = [
        sys.executable,
        "-m",
        "fgl_bench.cli.main",
        "algorithm=fedavg",
        *TINY[:2],
        "num_clients=4",
        "trips=4000000",
        "seeds=[0,1]",
        "threads=2",
    ]
    process = subprocess.Popen(line, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children: list[str] = []
    try:
        for _ in range(600):
            time.sleep(0.1)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
            if len(children) == 2:
                break
        process.send_signal(number)
        process.wait(120)
        for _ in range(100):
            if not any(Path(f"/proc/{child}/stat").exists() for child in children):
                break
            time.sleep(0.1)
    finally:
        process.kill()
    assert len(children) == 2 and not any(Path(f"/proc/{child}/stat").exists() for child in children)
    assert not [path for path in tmp_path.rglob("runs/*") if path.is_file()]


def test_interruption_says_what_was_kept_and_leaves_no_half_run(tmp_path: Path) -> None:
    line = [sys.executable, "-u", "-m", "fgl_bench.cli.main", "-m", "algorithm=local,fedavg", *TINY[:2], "num_clients=4"]
    sweep = [*line, "trips=8,4000000", "progress=false"]
    process = subprocess.Popen(
        sweep, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell starts its background jobs, and so what runs these tests there, deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for text in process.stdout:  # the second job, which would take for ever, has begun
            if text.startswith("[1/4, "):
                break
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted; kept: 1 finished run(s)" in errors and "Traceback" not in errors
    files = [path for path in (tmp_path / "results/runs").rglob("*") if path.is_file()]
    runs = [path for path in files if not any(part.endswith(".checkpoint") for part in path.parts)]
    assert len({path.parent for path in runs}) == 1 and any(path.name == "summary.json" for path in runs)


def test_options_may_stand_anywhere() -> None:
    given = ["a=1", "-m", "b=2,3", "--config-dir", "own", "c=4", "~d"]
    assert options_first(given) == ["-m", "--config-dir", "own", "a=1", "b=2,3", "c=4", "~d"]


def test_keys_of_a_swept_group_are_left_to_the_jobs() -> None:
    given = ["-m", "algorithm=a,b", "algorithm.x=1", "algorithm.y=1,2", "algorithm.z=range(1,3)", "model.h=3", "trips=1,2"]
    wanted = ["-m", "algorithm=a,b", "algorithm.x=choice(1)", "algorithm.y=choice(1,2)", "algorithm.z=range(1,3)", "model.h=3", "trips=1,2"]
    assert keys_of_swept_groups(given) == wanted
    assert keys_of_swept_groups(given[1:]) == given[1:]
    nested = ["-m", "scenario/sparsity=label,edge", "scenario.sparsity.rate=0.2", "scenario.lag=[2,5]"]
    assert keys_of_swept_groups(nested) == [*nested[:2], "scenario.sparsity.rate=choice(0.2)", nested[3]]
    assert keys_of_swept_groups(["-m", "algorithm=a", "algorithm.x=1"]) == ["-m", "algorithm=a", "algorithm.x=1"]
