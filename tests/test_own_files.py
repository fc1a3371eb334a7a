"""``GROUP=FILE.py[:Class]``: a class in a user's file as a choice, by the command and from Python."""

from __future__ import annotations

import sys

import pytest

import fgl_bench
from fgl_bench.config.compose import composed
from fgl_bench.config.groups import label

METHOD = """
from dataclasses import dataclass
from fgl_bench.algorithms.d_psgd import DPSGD
from fgl_bench.algorithms.fedavg import FedAvg

@dataclass
class Keeping(FedAvg):
    keep: float = 0.5
    names: list[str] | None = None

    def refine(self, previous, received, uploaded, arrived):
        return self.keep * previous + (1 - self.keep) * received

@dataclass
class Nearest(DPSGD):
    k: int
"""
SPLIT = """
from dataclasses import dataclass
import numpy as np
from fgl_bench import Split

@dataclass
class InOrder(Split):
    def parts(self, graph, num_clients, seed):
        return np.arange(graph.num_nodes) * num_clients // graph.num_nodes
"""


METRIC = """
def shares(logits, labels):
    assert logits.ndim == 2 and len(logits) == len(labels)
    return (logits.argmax(-1) == labels).double().mean()
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "methods_of_a_file.py").write_text(METHOD)
    (tmp_path / "split_of_a_file.py").write_text(SPLIT)
    (tmp_path / "metric_of_a_file.py").write_text(METRIC)
    yield
    for name in ("methods_of_a_file", "split_of_a_file", "metric_of_a_file"):
        sys.modules.pop(name, None)


def test_keys_are_the_fields_with_their_defaults_and_the_scenario_follows_the_class(files):
    cfg = composed(["algorithm=mine/methods_of_a_file.py:Keeping", "algorithm.keep=0.25"])
    assert dict(cfg.algorithm) == {"_target_": "methods_of_a_file.Keeping", "keep": 0.25, "names": None}
    assert cfg.scenario._target_.endswith(".Sync") and label(cfg, "algorithm") == "keeping"
    cfg = composed(["algorithm=mine/methods_of_a_file.py:Nearest", "algorithm.k=3"])
    assert cfg.scenario._target_.endswith(".Decentralized")
    own = composed(["algorithm=d_psgd"]).algorithm  # what the base class has from its own choice
    assert {**cfg.algorithm} == {**own, "_target_": "methods_of_a_file.Nearest", "k": 3}


def test_a_class_in_a_file_is_the_run_of_its_object(files, tmp_path):
    small = {"num_clients": 3, "rounds": 1, "seeds": [0], "results_dir": str(tmp_path / "runs")}
    by_name = fgl_bench.run("mine/methods_of_a_file.py:Keeping", "csbm", split="split_of_a_file.py", algorithm__keep=0.25, **small)
    from methods_of_a_file import Keeping

    by_object = fgl_bench.run(Keeping(keep=0.25), "csbm", split="split_of_a_file.py", **small)
    assert by_name.folder == by_object.folder and by_name.summary["split"] == "inorder"


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("mine/no.py", "algorithm=mine/no.py: there is no such file"),
        ("mine/methods_of_a_file.py", "defines Keeping, Nearest; name one as mine/methods_of_a_file.py:CLASS"),
        ("mine/methods_of_a_file.py:Other", "no such class in it; it defines Keeping, Nearest"),
        ("split_of_a_file.py", "algorithm=split_of_a_file.py: defines no class derived from Algorithm, but InOrder"),
        ("mine/methods_of_a_file.py:Nearest", "algorithm.k has no value; write algorithm.k=..."),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(files, algorithm, message):
    with pytest.raises(fgl_bench.UserError) as caught:
        fgl_bench.run(algorithm, "csbm", num_clients=3, rounds=1, seeds=[0])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_function_is_a_metric_by_its_file_and_a_column_of_scores(files, tmp_path):
    small = {"num_clients": 3, "rounds": 2, "seeds": [0, 1], "results_dir": str(tmp_path / "runs")}
    done = fgl_bench.run("fedavg", "csbm", metrics=["metric_of_a_file.py:shares", "macro_f1"], **small)
    scores = done.scores()
    assert scores["shares"].tolist() == pytest.approx(scores["score"].tolist()), "the accuracy, by another function"
    assert {"macro_f1", "shares"} <= {*scores} and done.summary["config"]["metrics"] == ["metric_of_a_file.shares", "macro_f1"]
    assert "metric_of_a_file:metric_of_a_file.py" in done.summary["config"]["code"]
    assert "test shares in %" in str(fgl_bench.table(tmp_path / "runs", metric="shares"))
    assert fgl_bench.load_results(tmp_path / "runs")["shares"].notna().all()


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("shares", "must be a list of accuracy, auc"),
        ("metric_of_a_file.py:nope", "metrics=[metric_of_a_file.py:nope]: cannot be imported"),
        ("no.py:shares", "no.py: there is no such file"),
        ("statistics.accuracy", "metrics=[statistics.accuracy]: cannot be imported"),
    ],
)
def test_what_is_wrong_with_a_metric_is_one_line(files, metric, message):
    with pytest.raises(fgl_bench.UserError) as caught:
        fgl_bench.run("fedavg", "csbm", num_clients=3, rounds=1, seeds=[0], metrics=[metric])
    assert message in str(caught.value) and "\n" not in str(caught.value)
