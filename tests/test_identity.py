"""Keys that came after results had been stored leave these results theirs."""

from __future__ import annotations

from importlib import import_module

import pytest
from omegaconf import DictConfig, OmegaConf

from fgl_bench.config.compose import composed
from fgl_bench.config.identity import BEFORE, CORRECTED, without_younger_keys
from fgl_bench.reporting.store import config_hash, identity


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
        "dataset.normalize_features=true", "split.masks=global", "split.stratify=false", "split.seeded=false",
        "split=louvain split.deal=fedgta", "split=louvain split.seed=0", "algorithm=adafgl algorithm.attention=raw",
        "model=unifilter model.filter_lr=0.1", "model=unifilter model.default_homophily=0.75", "model=unifilter model.per_feature=true",
        "algorithm=fedsa_gcl algorithm.lsc=fedgta", "algorithm=fedssa model=unifilter algorithm.encoder=detached",
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


def test_stored_results_of_a_server_are_those_without_scores_of_trained_models():
    def of(**split):
        cfg = resolved(composed(["dataset=csbm", "split=iid_server", "rounds=5"]))
        return config_hash(identity({**cfg, "split": {k: v for k, v in {**cfg["split"], **split}.items() if v is not None}}, 5, 100))

    assert of(score_trained="never") == of(score_trained=None)
    assert len({of(score_trained=when) for when in ("every", "final", "never")}) == 3 and of() == of(score_trained="final")
