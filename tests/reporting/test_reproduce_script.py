"""The script as a person calls it: runs what is missing once, goes on after a failure, stops cleanly."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fgl_bench.errors import UserError

ROOT = Path(__file__).parents[2]
TINY = ("--tables", "3", "--methods", "local", "--seeds", "0", "--set", "num_clients=4")


def call(folder: Path, *arguments: str) -> subprocess.Popen:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("FGL_BENCH", "HYDRA"))}
    env = {**clean, "PYTHONPATH": str(ROOT / "src"), "FGL_BENCH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, str(ROOT / "scripts/reproduce_tables.py"), *TINY, *arguments]
    return subprocess.Popen(
        line, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )  # fmt: skip


def finished(folder: Path, *arguments: str) -> tuple[int, str]:
    process = call(folder, *arguments)
    output, _ = process.communicate(timeout=250)
    return process.returncode, output


def numbers(table: str) -> list[str]:
    """The lines of the table itself."""
    return [line for line in table.splitlines() if line.startswith("|")]


@pytest.mark.slow
def test_missing_runs_are_made_once_and_a_failing_one_stops_nothing(tmp_path: Path) -> None:
    status, output = finished(tmp_path, "trips=8", "--datasets", "cora,csbm", "--data-dir", "nowhere", "--jobs", "2")
    assert status == 1, output
    assert output.count("failed: table 3, cora, local") == 2 and "nowhere/Cora" in output
    assert "done: table 3, csbm, local" in output

    results = tmp_path / "results"
    stored = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((results / "cells/fedsa_gcl").glob("*.json"))]
    assert [(cell["algorithm"], cell["dataset"], cell["seeds"]) for cell in stored] == [("local", "csbm", [0])]
    table = results / "tables/fedsa_gcl/table3.md"
    [local] = [line for line in table.read_text(encoding="utf-8").splitlines() if line.startswith("| Local |")]
    assert f"{100 * stored[0]['test']['trained']['mean']:.1f}" in local
    assert "- Local: cora (about" in table.read_text(encoding="utf-8")
    assert {path.suffix for path in table.parent.iterdir()} == {".md", ".csv", ".tex"}

    # The store alone is enough: without the runs nothing is repeated, and the table is the same.
    before = table.read_text(encoding="utf-8")
    shutil.rmtree(results / "runs")
    table.unlink()
    status, output = finished(tmp_path, "trips=8", "--datasets", "csbm")
    assert status == 0 and "1 run(s) complete, 0 to make" in output, output
    assert not (results / "runs").exists()
    assert numbers(table.read_text(encoding="utf-8")) == numbers(before)


@pytest.mark.slow
def test_an_end_signal_ends_the_run_under_way_and_writes_the_tables(tmp_path: Path) -> None:
    process = call(tmp_path, "trips=400000", "--datasets", "csbm")
    for line in process.stdout:
        if line.startswith("start:"):
            break
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 130 and "interrupted" in output
    with pytest.raises(ProcessLookupError):  # nobody of its session is left
        os.killpg(process.pid, 0)
    assert (tmp_path / "results/tables/fedsa_gcl/table3.md").is_file()
    assert not list((tmp_path / "results").rglob("summary.json"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tables", "9"), "TABLE=9: unknown; allowed: 3, 2"),
        (("--datasets", "cora,corra"), "DATASETS=corra: unknown"),
        (("--methods", "fedaveraging"), "METHODS=fedaveraging: unknown"),
    ],
)
def test_unknown_names_are_refused(arguments: tuple[str, ...], said: str) -> None:
    place = importlib.util.spec_from_file_location("reproduce_tables", ROOT / "scripts/reproduce_tables.py")
    script = importlib.util.module_from_spec(place)
    sys.modules[place.name] = script  # dataclasses look their module up
    place.loader.exec_module(script)
    with pytest.raises(UserError, match=said):
        script.Reproduction(script.parser().parse_args(arguments))


def test_the_list_says_commands_and_runs_nothing(tmp_path: Path) -> None:
    status, output = finished(tmp_path, "trips=8", "--datasets", "cora", "--list")
    assert status == 0
    assert "fgl-bench experiment=fedsa_gcl/table3 dataset=cora algorithm=local seeds=[0] num_clients=4 trips=8" in output
    assert not (tmp_path / "results").exists()
