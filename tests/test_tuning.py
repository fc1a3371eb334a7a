"""The search for hyper-parameters: on validation, resumed, its spaces those of the papers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

from fgl_bench.cli.tune import FOLDER, composed, read_options, read_space, search, shown, spaces
from fgl_bench.errors import UserError

SMALL = (
    "dataset=csbm", "dataset.num_nodes=240", "dataset.num_edges=520", "dataset.num_features=24", "dataset.words_per_node=6",
    "num_clients=4", "rounds=4", "seeds=[0]", "device=cpu", "threads=1",
)  # fmt: skip


@pytest.mark.parametrize("name", spaces())
def test_every_space_fits_the_command_that_stands_in_it(name):
    space = read_space(name)
    said = re.search(r"fgl-bench tune (\w+) (.*)", (FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert said and said[1] == name
    ends = {key: shown(bounds["choices"][0] if "choices" in bounds else bounds["low"]) for key, bounds in space.items()}
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
        ("lr: {low: 0, high: 1}", "lr: a range is"),
        ("lr: {low: 0, high: 1, kind: complex}", "integer | real"),
        ("lr: {choices: []}", "lr: a range is"),
        ("lr: [", "not readable as yaml"),
    ],
)
def test_a_space_that_is_none_is_refused(text, said, tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(said)):
        read_space(str(path))


@pytest.mark.parametrize(
    ("given", "said"),
    [({"trials": "0"}, "at least 1"), ({"trials": "many"}, "numbers"), ({"model_of": "test"}, "received, trained")],
)
def test_keys_of_the_search_are_checked(given, said):
    with pytest.raises(UserError, match=said):
        read_options(given)
    with pytest.raises(UserError, match="no such space"):
        search(["no_such_space"])


def test_without_a_space_the_spaces_are_listed(capsys):
    search([])
    said = capsys.readouterr().out
    assert all(name in said for name in spaces()) and "trials=20" in said


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
    space.write_text("participation: {choices: [0.5, 7.0]}\n", encoding="utf-8")
    search([str(space), "algorithm=local", *SMALL, f"results_dir={tmp_path / 'runs'}", "trials=6"])
    said = capsys.readouterr()
    assert "refused: participation=7.0" in said.err and "best of" in said.out and "participation=0.5" in said.out
