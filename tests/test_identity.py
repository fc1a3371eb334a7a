"""What a run is identified by."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from fgl_bench import UserError, run, table
from fgl_bench.config.compose import composed
from fgl_bench.config.identity import CORRECTED
from fgl_bench.results.frame import read_runs
from fgl_bench.results.migrate import migrate
from fgl_bench.results.store import config_hash, identity


def resolved(cfg: DictConfig) -> dict:
    return OmegaConf.to_container(cfg, resolve=True)


def digest(*overrides):
    cfg = composed(["dataset=csbm", "rounds=5", *overrides])
    return config_hash(identity(resolved(cfg), 5, 100))


def test_a_run_of_version_1_0_is_a_run_of_this_version_once_it_is_migrated(tmp_path):
    """The stored folder of version 1.0 lacks younger keys in its identities; its table stays what it was."""
    folder = tmp_path / "runs"
    shutil.copytree(Path(__file__).parent / "version_1_0/runs", folder)
    before, runs = str(table(folder)), {run.folder.name: run.summary for run in read_runs(folder)}
    assert {summary["schema_version"] for summary in runs.values()} == {1}
    renamed = migrate(folder)
    after = {run.folder.name: run.summary for run in read_runs(folder)}
    assert set(renamed) == set(runs) and set(renamed.values()) == set(after) and not set(runs) & set(after)
    for old, new in renamed.items():
        assert runs[old]["test"] == after[new]["test"] and config_hash(after[new]["config"]) == new
    assert str(table(folder)) == before and migrate(folder) == {}
    summary = next(each for each in after.values() if each["algorithm"] == "fedprox")
    config = summary["config"]
    keys = {f"dataset__{key}": config["dataset"][key] for key in ("num_nodes", "num_edges", "num_features", "words_per_node")}
    again = run(
        "fedprox", "csbm", split="metis", algorithm__mu=config["algorithm"]["mu"], num_clients=4, rounds=6, local_epochs=3,
        seeds=summary["seeds"], dtype="float64", results_dir=folder, **keys,
    )  # fmt: skip
    assert again.summary == summary, "it is complete already"


@pytest.mark.parametrize(
    "override",
    [
        "dataset.normalize_features=true",
        "split.masks=global",
        "split.stratify=false",
        "split.seeded=false",
        "split=louvain split.deal=fedgta",
        "split=louvain split.seed=0",
        "algorithm=adafgl algorithm.attention=raw",
        "model=unifilter model.filter_lr=0.1",
        "model=unifilter model.default_homophily=0.75",
        "model=unifilter model.per_feature=true",
        "algorithm=fedsa_gcl algorithm.lsc=fedgta",
        "algorithm=fedssa model=unifilter algorithm.encoder=detached",
        "algorithm=fediih model=disengcn algorithm.inference_activation=none",
    ],
)
def test_any_other_value_is_another_run(override):
    *base, last = override.split()
    assert digest(*base, last) != digest(*base)


def test_what_the_table_shows_is_no_part_of_the_identity():
    assert digest("selection=client", "average=macro") == digest()


def test_corrected_classes_exist_and_are_part_of_the_identity():
    for target, date in CORRECTED.items():
        module, _, name = target.rpartition(".")
        assert isinstance(getattr(import_module(module), name), type)
        cfg = resolved(composed([f"algorithm={target.split('.')[-2]}", "dataset=csbm", "rounds=5"]))
        assert identity(cfg, 5, 100)["code"] == {target: f"corrected on {date}"}
    assert "code" not in identity(resolved(composed(["dataset=csbm", "rounds=5"])), 5, 100)


TINY = {"dataset__num_nodes": 120, "dataset__num_edges": 300, "num_clients": 3, "rounds": 4, "threads": 1}


def test_one_run_has_one_identity_however_it_is_spelled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("mine").mkdir()
    np.savez("mine/graph.npz", x=rng.random((60, 5)), edge_index=rng.integers(0, 60, (2, 150)), y=rng.integers(0, 2, 60))
    small = {key: value for key, value in TINY.items() if not key.startswith("dataset")}
    first = run("fedavg", "custom", dataset__path="mine/graph.npz", seeds=[0, 1], metrics=["macro_f1", "micro_f1"], **small)
    for path in ("./mine/graph.npz", str(tmp_path / "mine/graph.npz"), "mine/../mine/graph.npz"):
        again = run("fedavg", "custom", dataset__path=path, seeds=[1, 0], metrics=["micro_f1", "macro_f1"], **small)
        assert again.folder == first.folder and again.summary == first.summary
    assert first.summary["seeds"] == [0, 1]
    monkeypatch.chdir("mine")
    with pytest.raises(UserError, match="dataset.path"):
        run("fedavg", "custom", dataset__path="mine/graph.npz", **small)


def test_targets_are_no_part_of_the_identity_and_any_is_answered_later(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = [0.05, 0.31, 0.4, 0.99]
    whole = run("fedavg", "csbm", seeds=[0, 1], targets=asked, results_dir="whole", **TINY)
    run("fedavg", "csbm", seeds=[0, 1], results_dir="later", **TINY)
    later = run("fedavg", "csbm", seeds=[0, 1], targets=asked, results_dir="later", **TINY)
    assert later.folder.relative_to("later") == whole.folder.relative_to("whole")
    assert later.summary["client_trips"] == whole.summary["client_trips"]
    assert {*json.loads((later.folder / "summary.json").read_text())["client_trips"]["to_target"]} == {
        "0.05", "0.31", "0.4", "0.99", "0.5", "0.6", "0.7", "0.8",
    }  # fmt: skip
    for target in (0.31, 0.35):
        [block] = table("later", metric=f"trips_to_{target}", model_of="received").blocks
        [shown] = block.scores.values()
        curve = later.curve()
        by_hand = {seed: curve[(curve.seed == seed) & (curve.val_received >= target)].trip.min() for seed in (0, 1)}
        assert shown.per_seed == by_hand
