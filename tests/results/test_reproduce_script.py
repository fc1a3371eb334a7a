"""The script as a person calls it: runs what is missing once, goes on after a failure, stops cleanly."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from fgl_bench.papers.plan import load_paper, papers
from fgl_bench.results.cells import read_cells

ROOT = Path(__file__).parents[2]
TINY = ("--paper", "fedsa_gcl", "--tables", "3", "--methods", "local", "--seeds", "[0]", "--set", "num_clients=4")


def call(folder: Path, *arguments: str, start: tuple[str, ...] = TINY) -> subprocess.Popen:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("FGL_BENCH", "HYDRA"))}
    env = {**clean, "PYTHONPATH": str(ROOT / "src"), "FGL_BENCH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, str(ROOT / "scripts/reproduce_tables.py"), *start, *arguments]
    return subprocess.Popen(
        line, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )  # fmt: skip


def finished(folder: Path, *arguments: str) -> tuple[int, str]:
    process = call(folder, *arguments)
    output, _ = process.communicate(timeout=250)
    return process.returncode, output


@cache
def script():
    place = importlib.util.spec_from_file_location("reproduce_tables", ROOT / "scripts/reproduce_tables.py")
    module = importlib.util.module_from_spec(place)
    sys.modules[place.name] = module  # dataclasses look their module up
    place.loader.exec_module(module)
    return module


def numbers(table: str) -> list[str]:
    """The lines of the table itself."""
    return [line for line in table.splitlines() if line.startswith("|")]


@pytest.mark.nightly
def test_missing_runs_are_made_once_and_a_failing_one_stops_nothing(tmp_path: Path) -> None:
    status, output = finished(tmp_path, "trips=8", "--datasets", "cora,csbm", "--data-dir", "nowhere", "--jobs", "2")
    assert status == 1, output
    assert output.count("failed: fedsa_gcl: table 3, cora, local") == 2 and "nowhere/Cora" in output
    assert "done: fedsa_gcl: table 3, csbm, local" in output

    results = tmp_path / "results"
    stored = read_cells(results / "cells/fedsa_gcl")
    assert [(cell["algorithm"], cell["dataset"], cell["seeds"]) for cell in stored] == [("local", "csbm", [0])]
    table = results / "tables/fedsa_gcl/table3.md"
    [local] = [line for line in table.read_text(encoding="utf-8").splitlines() if line.startswith("| Local |")]
    assert f"{100 * stored[0]['test']['trained']['mean']:.1f}" in local
    assert "- Local: cora" in table.read_text(encoding="utf-8")
    assert {path.suffix for path in table.parent.iterdir()} == {".md", ".csv", ".tex"}

    # The store alone is enough: without the runs nothing is repeated, and the table is the same.
    before = table.read_text(encoding="utf-8")
    shutil.rmtree(results / "runs")
    table.unlink()
    status, output = finished(tmp_path, "trips=8", "--datasets", "csbm")
    assert status == 0 and "1 run(s) complete, 0 to make" in output, output
    assert not (results / "runs").exists()
    assert numbers(table.read_text(encoding="utf-8")) == numbers(before)

    # Asked to, it makes the same run once more, which takes the stored one's place.
    status, output = finished(tmp_path, "trips=8", "--datasets", "csbm", "--again")
    assert status == 0 and output.count("done: fedsa_gcl: table 3, csbm, local") == 1, output
    [again] = read_cells(results / "cells/fedsa_gcl")
    assert again["finished"] > stored[0]["finished"] and again["test"] == stored[0]["test"]


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_all_papers_are_planned_at_once(tmp_path: Path) -> None:
    process = call(tmp_path, "--paper", "all", "--datasets", "cora", "--data-dir", "nowhere", "--list", start=TINY[2:6])
    output, _ = process.communicate(timeout=250)
    assert process.returncode == 0, output
    with_local = [name for name in papers() if any(r.key == "local" for t in load_paper(name).tables if t.key == "3" for r in t.rows)]
    planned = re.findall(r"^(\w+): (\d+) run\(s\) complete, (\d+) to make", output, flags=re.MULTILINE)
    assert {"fedsa_gcl", "dfed_sst"} <= set(with_local) <= {name for name, *_ in planned} and all(done == "0" for _, done, _ in planned)
    assert "more need dataset=cora, which is absent (nowhere/Cora/raw/ind.cora.x)" in output
    for paper in ("fedsa_gcl", "dfed_sst"):  # costs are known from results/rates.csv
        assert re.search(rf"{paper}: table 3, cora, local: about [0-9.]+ (s|min), needs dataset=cora", output)
    assert not list(tmp_path.rglob("summary.json"))


@pytest.mark.nightly
def test_of_an_absent_dataset_one_run_is_tried_and_the_others_are_left_out(tmp_path: Path) -> None:
    status, output = finished(tmp_path, "trips=8", "--methods", "fedavg,majority", "--datasets", "cora,csbm", "--data-dir", "nowhere")
    assert status == 1, output
    assert output.count("start:") == 3 and "left out: 1 more run(s) that need dataset=cora" in output
    assert output.index("csbm, fedavg") < output.index("start: fedsa_gcl: table 3, cora"), "what can be run comes first"
    assert re.search(r"^failed: fedsa_gcl: table 3, cora, \w+: .*ind.cora.x not found", output, flags=re.MULTILINE), "no reason at the end"


@pytest.mark.parametrize(("text", "seeds"), [("5", "01234"), ("1", "0"), ("[5]", "5"), ("0,3", "03"), ("[0]", "0")])
def test_seeds_are_how_many_or_which(text: str, seeds: str) -> None:
    assert script().seed_list(text) == list(seeds)


def test_the_list_says_commands_and_runs_nothing(tmp_path: Path) -> None:
    status, output = finished(tmp_path, "trips=8", "--datasets", "cora", "--list")
    assert status == 0
    assert "fgl-bench experiment=fedsa_gcl/table3 dataset=cora algorithm=local seeds=[0] num_clients=4 trips=8" in output
    assert not (tmp_path / "results").exists()


def test_the_plan_says_how_many_runs_are_of_alternative_rows(tmp_path: Path) -> None:
    start = ("--paper", "fedsa_gcl", "--tables", "3", "--methods", "fedavg,fedavg_e3,fedgta", "--list")
    process = call(tmp_path, "--datasets", "csbm", start=start)
    output, _ = process.communicate(timeout=250)
    assert process.returncode == 0, output
    assert "3 to make" in output and "\n  1 of them, for rows without a printed value to compare, come after the others: " in output
    assert re.findall(r"csbm, (\w+):", output)[-1] == "fedavg_e3"


def test_the_cheapest_runs_of_all_papers_come_first_and_alternative_rows_after_what_is_compared(tmp_path: Path) -> None:
    start = ("--paper", "fedsa_gcl,dfed_sst", "--tables", "2,3", "--methods", "fedavg,fedavg_e3,dis_pfl", "--list", "--cheapest")
    process = call(tmp_path, "--datasets", "cora,photo,physics", "--data-dir", str(tmp_path), start=start)
    output, _ = process.communicate(timeout=250)
    assert process.returncode == 0, output
    found = re.findall(r"^  (\w+): table (.*), (\w+): about ([0-9.]+) (s|min|h)", output, flags=re.MULTILINE)
    later = [row == "fedavg_e3" for _, _, row, *_ in found]  # rows of three epochs are compared with nothing
    assert later == sorted(later) and len(set(later)) == 2
    seconds = [float(value) * {"s": 1, "min": 60, "h": 3600}[unit] for *_, value, unit in found]
    # DFed-SST's paper has no FedAvg, and in its table 2 no Dis-PFL on these data sets.
    without_print = [
        paper == "dfed_sst" and (row == "fedavg" or column.startswith(("2, photo", "2, physics"))) for paper, column, row, *_ in found
    ]
    order = list(zip(later, without_print, seconds, strict=True))
    assert len(set(seconds)) > 5 and any(without_print) and order == sorted(order), "not by cost"
    changes = sum(one != other for (one, *_), (other, *_) in pairwise(found))
    assert changes > 1, "paper after paper"
