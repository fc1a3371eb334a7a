"""The search for hyper-parameters: on validation, resumed, its spaces those of the papers."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import signal
import time
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

from fgl_bench.cli import tune
from fgl_bench.cli.tune import FOLDER, read_space, search, spaces
from fgl_bench.config.compose import composed
from fgl_bench.config.values import plain
from fgl_bench.errors import UserError
from tests.warm import begun, command

SMALL = (
    "dataset=csbm", "dataset.num_nodes=240", "dataset.num_edges=520", "dataset.num_features=24", "dataset.words_per_node=6",
    "num_clients=4", "rounds=4", "seeds=[0]", "device=cpu", "threads=1",
)  # fmt: skip


@pytest.mark.parametrize("name", spaces())
def test_every_space_fits_the_command_that_stands_in_it(name):
    space = read_space(name)
    said = re.search(r"fgl-bench tune (\w+) (.*)", (FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert said and said[1] == name
    ends = {key: plain(bounds["choices"][0] if "choices" in bounds else bounds["low"]) for key, bounds in space.items()}
    composed([*said[2].split(), *(f"{key}={value}" for key, value in ends.items())])
    assert not HydraConfig.initialized()


def test_fedgta_s_printed_ranges():
    assert read_space("fedgta_gamlp")["model.hops"] == {"low": 2, "high": 20, "kind": "integer"}
    assert read_space("fedgta_gamlp")["model.layers"] == {"low": 2, "high": 6, "kind": "integer"}
    assert read_space("fedgta")["algorithm.threshold"] == {"low": 0.0, "high": 1.0, "kind": "real"}
    assert read_space("fedprox") == {"algorithm.mu": {"choices": [0.001, 0.01, 0.1]}}
    assert read_space("fedsage_plus")["algorithm.max_neighbours"] == {"choices": [2, 5, 10]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1", "a line for every key"),
        ("lr: 0.1", "lr: a range is"),
        ("lr: {low: 0.1, high: 0.01, kind: real}", "low below high"),
        ("lr: {low: 0, high: 0.01, kind: real, log: true}", "lr: low=0 must be above 0 with log: true"),
        ("rounds: {low: 1.5, high: 4, kind: integer}", "rounds: low=1.5 and high=4 must be integers"),
        ("lr: {low: 0, high: 1}", "lr: a range is"),
        ("lr: {low: 0, high: 1, kind: complex}", "integer | real"),
        ("lr: {choices: []}", "lr: a range is"),
        ("lr: [", "not readable as yaml"),
        ("5", "a line for every key"),
        ("lr: 1\nlr: 2", "not readable as yaml"),
        ("seeds: {choices: ['[0]', '[1]']}", "seeds: is not searched"),
        ("++seeds: {choices: ['[0]', '[1]']}", "seeds: is not searched"),
        ("overwrite: {choices: [true]}", "overwrite: is not searched"),
        ("results_dir: {choices: [a, b]}", "results_dir: is not searched"),
        ("tracker.uri: {choices: [a, b]}", "tracker.uri: is not searched"),
    ],
)
def test_a_space_that_is_none_is_refused(text, said, tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(said)):
        read_space(str(path))


def summaries(folder: Path) -> list[dict]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in folder.rglob("summary.json")]


def test_trials_are_judged_by_validation_and_a_study_goes_on(tmp_path, capsys, monkeypatch):
    pytest.importorskip("optuna", reason="needs the tune extra")
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    space = tmp_path / "space.yaml"
    space.write_text("lr: {low: 0.001, high: 0.1, kind: real, log: true}\nmodel.dropout: {choices: [0.0, 0.5]}\n", encoding="utf-8")
    line = [str(space), "algorithm=fedavg", *SMALL, f"results_dir={tmp_path / 'runs'}", "model_of=received"]
    search([*line, "trials=3"])
    first = capsys.readouterr().out
    assert "0 of 3 trials made" in first and first.count("\ntrial ") == 3
    search([*line, "trials=5"])
    second = capsys.readouterr().out
    assert "3 of 5 trials made" in second and second.count("\ntrial ") == 2

    found = summaries(tmp_path / "runs")
    best = max(found, key=lambda summary: summary["test"]["received"]["val"]["mean"])
    said = re.search(r"best of 5: validation ([\d.]+)\n  (.*)", second)
    assert float(said[1]) == pytest.approx(100 * best["test"]["received"]["val"]["mean"], abs=0.01)
    assert f"lr={best['config']['lr']}" in said[2] and said[2].startswith("fgl-bench algorithm=fedavg")
    everything = first + second
    shown_scores = {f"{100 * summary['test'][model]['mean']:.2f}" for summary in found for model in ("received", "trained")}
    valid_scores = {f"{100 * summary['test']['received']['val']['mean']:.2f}" for summary in found}
    assert not any(score in everything for score in shown_scores - valid_scores), "a test score is told"


def test_a_refused_trial_is_told_and_the_search_goes_on(tmp_path, capsys, monkeypatch):
    pytest.importorskip("optuna", reason="needs the tune extra")
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    space = tmp_path / "space.yaml"
    space.write_text("participation: {choices: [0.5, 7.0]}\nlr: {choices: [0.01, 0.05]}\n", encoding="utf-8")
    search([str(space), "algorithm=local", *SMALL, f"results_dir={tmp_path / 'runs'}", "trials=6"])
    said = capsys.readouterr()
    assert "refused: participation=7.0" in said.err and "best of 2" in said.out and "participation=0.5" in said.out
    made = re.findall(r"^trial \d+: .* with (.*?)(?:;.*)?$", said.out, flags=re.MULTILINE)
    assert sorted(made) == [f"participation={share} lr={lr}" for share in (0.5, 7) for lr in (0.01, 0.05)], "every combination once"


# ---- one's own method, pruning, killed searches

METHOD = """
from dataclasses import dataclass
from fgl_bench.algorithms.fedavg import FedAvg

@dataclass
class Mine(FedAvg):
    power: float
"""
SPACE = "lr: {low: 0.0001, high: 0.1, kind: real, log: true}\nalgorithm.power: {choices: [1.0, 2.0]}\n"


@pytest.fixture
def own(tmp_path):
    """A folder with a method and a search space of one's own."""
    pytest.importorskip("optuna", reason="needs the tune extra")
    (tmp_path / "mine.py").write_text(METHOD, encoding="utf-8")
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    (tmp_path / "conf/algorithm").mkdir(parents=True)
    (tmp_path / "conf/algorithm/power.yaml").write_text("_target_: mine.Mine\npower: 3.0\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), ("algorithm=fedavg", "algorithm._target_=mine.Mine")),
        pytest.param(("--config-dir", "conf"), ("algorithm=power",), marks=pytest.mark.nightly),
    ],
)
def test_a_method_of_one_s_own_is_tuned_and_the_printed_command_is_the_best_run(options, chosen, own):
    done = command(own, *options, "tune", "space.yaml", *chosen, *SMALL, "trials=5")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.split("best of")[0].splitlines())) <= 80
    line = shlex.split(done.stdout.splitlines()[-1])
    assert line[0] == "fgl-bench" and any(text.endswith(("power=1.0", "power=2.0")) for text in line)
    again = command(own, *line[1:])
    assert again.returncode == 0 and "complete already" in again.stdout, again.stderr
    best = max(summary["test"]["trained"]["val"]["mean"] for summary in summaries(own / "results/runs"))
    assert f"best of 5: validation {100 * best:.2f}\n" in done.stdout
    assert "importances (fANOVA, 5 trials): " in done.stdout
    assert [row["trial"] for row in trials(own)] != [] and float(trials(own)[0]["validation"]) == best

    (own / "mine.py").write_text(METHOD + "# changed\n", encoding="utf-8")
    changed = command(own, *options, "tune", "space.yaml", *chosen, *SMALL, "trials=1")
    assert "0 of 1 trials made" in changed.stdout, "trials of the old code are no trials of the new"


def trials(folder):
    """The rows of the newest table of a search."""
    path = max(folder.glob("results/searches/*.csv"), key=lambda path: path.stat().st_mtime)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


HOPELESS = (*SMALL, "rounds=20", "seeds=[0,1]", "trials=10", "threads=2")


@pytest.mark.nightly
def test_hopeless_trials_are_pruned_by_the_validation_of_the_first_seed_and_are_no_runs(own):
    (own / "space.yaml").write_text("lr: {choices: [0.05, 0.045, 0.04, 0.035, 0.03, 0.0000001, 0.0000002, 0.0000003]}\n", encoding="utf-8")
    done = command(own, "tune", "space.yaml", "algorithm=fedavg", *HOPELESS, "sampler_seed=1")
    assert done.returncode == 0, done.stderr
    states = [row["state"] for row in trials(own)]
    assert states.count("pruned") >= 1 and states == sorted(states), "scored trials stand before the others"
    pruned = [row for row in trials(own) if row["state"] == "pruned"]
    assert min(float(row["lr"]) for row in pruned) < 1e-6 and not any(row["validation"] for row in pruned)
    said = re.findall(r"trial \d+: pruned at (\d+) % of its trips, seed 0 at validation [\d.]+, with lr=", done.stdout)
    assert len(said) == len(pruned) and all(20 <= int(share) < 100 for share in said)
    count = len({row["lr"] for row in trials(own) if row["state"] == "complete"})
    assert len(summaries(own / "results/runs")) == count and not list(own.glob("results/runs/*/*/*/*/.*"))


@pytest.mark.nightly
@pytest.mark.parametrize("space", [SPACE, "lr: {choices: [0.01, 0.02, 0.03, 0.04, 0.05]}\nalgorithm.power: {choices: [1.0, 2.0]}\n"])
def test_a_search_that_is_killed_again_and_again_ends_as_one_that_was_not(own, space):
    (own / "space.yaml").write_text(space, encoding="utf-8")
    line = ("tune", "space.yaml", "algorithm=fedavg", "algorithm._target_=mine.Mine", *HOPELESS)
    assert command(own, *line).returncode == 0
    whole = trials(own)
    shutil.move(own / "results", own / "whole")
    for least in (3, 8):
        with begun(own, *line) as process:
            end = time.monotonic() + 100
            while process.is_alive() and time.monotonic() < end:
                [text] = [path.read_text(encoding="utf-8") for path in own.glob("results/searches/*.journal")] or [""]
                if text.count('"state":') > least:
                    break
                time.sleep(0.05)
            assert process.is_alive()
            os.kill(process.pid, signal.SIGKILL)
    last = command(own, *line)
    assert last.returncode == 0 and " 0 of 10 trials made" not in last.stdout
    made, expected = ([row | {"trial": ""} for row in rows] for rows in (trials(own), whole))
    if space == SPACE:
        assert made == expected
    else:  # the order of a grid is another one, and pruning depends on it
        assert {(row["lr"], row["algorithm.power"]) for row in made} == {(row["lr"], row["algorithm.power"]) for row in expected}
        assert len(made) == len(expected) == 10


def test_an_interrupted_search_says_what_it_has_before_it_ends(monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(tune.Search, "__init__", lambda self, *_: None)
    monkeypatch.setattr(tune.Search, "run", interrupted)
    monkeypatch.setattr(tune, "print_outcome", lambda current: print("the best so far"))
    with pytest.raises(KeyboardInterrupt):
        search(["fedgta"])
    assert capsys.readouterr().out == "the best so far\ninterrupted: give the same command to resume\n"


@pytest.mark.nightly
def test_an_interrupted_search_tells_what_it_has(own):
    with begun(own, "tune", "space.yaml", "algorithm=fedavg", "algorithm._target_=mine.Mine", *HOPELESS, "trials=1000") as process:
        end = time.monotonic() + 100
        while (own / "stdout").read_text(encoding="utf-8").count("\ntrial ") < 2 if (own / "stdout").exists() else True:
            assert process.is_alive() and time.monotonic() < end
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        process.join(60)
        assert process.exitcode == 130
    said = (own / "stdout").read_text(encoding="utf-8")
    assert "best of" in said and said.endswith("interrupted: give the same command to resume\n")
