"""Keys that came after results had been stored leave these results theirs."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from fgl_bench import UserError, run, table
from fgl_bench.config.compose import composed
from fgl_bench.config.identity import BEFORE, CORRECTED, without_younger_keys
from fgl_bench.results.store import config_hash, identity


def resolved(cfg: DictConfig) -> dict:
    return OmegaConf.to_container(cfg, resolve=True)


def digest(*overrides):
    cfg = composed(["dataset=csbm", "rounds=5", *overrides])
    return config_hash(identity(resolved(cfg), 5, 100))


@pytest.mark.parametrize("split", ["metis", "louvain", "iid", "dirichlet", "natural"])
def test_a_younger_key_with_its_former_value_is_no_part_of_the_identity(split):
    cfg = resolved(composed(["dataset=csbm", f"split={split}", "rounds=5"]))
    before = {group: {k: v for k, v in cfg[group].items() if k not in BEFORE.get(group, {})} for group in ("dataset", "split")}
    assert before != {group: cfg[group] for group in before}
    assert config_hash(identity({**cfg, **before}, 5, 100)) == config_hash(identity(cfg, 5, 100))


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
def test_any_other_value_is(override):
    *base, last = override.split()
    assert digest(*base, last) != digest(*base)


def test_a_value_of_another_type_is_another_value():
    assert without_younger_keys("split", {"stratify": 1, "masks": "client"}) == {"stratify": 1}
    assert without_younger_keys("model", {"seed": None}) == {"seed": None}


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


def test_stored_results_of_a_server_are_those_without_scores_of_trained_models():
    def of(**split):
        cfg = resolved(composed(["dataset=csbm", "split=iid_server", "rounds=5"]))
        return config_hash(identity({**cfg, "split": {k: v for k, v in {**cfg["split"], **split}.items() if v is not None}}, 5, 100))

    assert of(score_trained="never") == of(score_trained=None)
    assert len({of(score_trained=when) for when in ("every", "final", "never")}) == 3 and of() == of(score_trained="final")
