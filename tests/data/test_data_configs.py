"""Every yaml of the data stage fits its class, and every class has a yaml."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from importlib import import_module
from pkgutil import iter_modules
from typing import get_type_hints

import pytest
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

import fgl_bench.data.datasets
import fgl_bench.data.splits
from fgl_bench.config.identity import RENAMED, canonical
from fgl_bench.data import sparsity
from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.splits.base import Split
from tests.data.graphs import CONF

YAMLS = [path for group in ("dataset", "split", "scenario/sparsity") for path in sorted((CONF / group).glob("*.yaml"))]


def classes(package, base):
    names = [module.name for module in iter_modules(package.__path__) if not module.name.startswith("_")]
    modules = [import_module(f"{package.__name__}.{name}") for name in names]
    found = [kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__]
    return {kind for kind in found if issubclass(kind, base) and kind is not base and not kind.__name__.startswith("_")}


YOUNGER = {"normalize_features", "masks", "stratify", "seeded", "deal", "seed", "parts_per_owner", "score_trained", "standardize"}
"""Fields that yamls of users of version 1.0 may lack."""


ADDED = {"reserve", "train_per_class"}
"""Fields that no yaml has, so that runs stored before them keep their identity; a preset or ``+split.reserve=0.4`` sets them."""


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_yaml_sets_every_field_of_its_class_to_a_value_of_its_type(path):
    content = OmegaConf.load(path)
    kind = get_class(content._target_)
    assert {*content} - {"_target_"} == {field.name for field in fields(kind)} - ADDED
    defaults = {field.name for field in fields(kind) if field.default is not MISSING or field.default_factory is not MISSING}
    assert defaults <= YOUNGER | ADDED
    schema = OmegaConf.structured(kind)  # what the command line checks types with
    values = OmegaConf.to_container(content)
    values.pop("_target_")
    OmegaConf.merge(schema, values)
    assert get_type_hints(kind).keys() >= values.keys()
    assert isinstance(instantiate(content), kind)


def test_datasets_are_named_as_their_files():
    assert all(OmegaConf.load(path).name == path.stem for path in (CONF / "dataset").glob("*.yaml"))


def test_every_class_has_a_yaml():
    named = {get_class(OmegaConf.load(path)._target_) for path in YAMLS}
    kinds = {
        kind for kind in vars(sparsity).values() if inspect.isclass(kind) and hasattr(kind, "apply") and not kind.__name__.startswith("_")
    }
    assert named == classes(fgl_bench.data.datasets, Dataset) | classes(fgl_bench.data.splits, Split) | (kinds - {sparsity.Sparsity})


def test_stored_runs_know_every_dataset_and_split_by_the_module_that_it_once_had():
    assert canonical("fgl_bench.data.datasets.npz.Amazon") == "fgl_bench.data.datasets.amazon.Amazon"
    assert canonical("fgl_bench.data.datasets.csbm.CSBM") == "fgl_bench.data.datasets.csbm.CSBM"
    targets = {OmegaConf.load(path)._target_ for group in ("dataset", "split") for path in (CONF / group).glob("*.yaml")}
    assert RENAMED.keys() <= {".".join(target.split(".")[-2:]) for target in targets}
    known_as = {canonical(target) for target in targets}
    assert len(known_as) == len(targets) and {canonical(name) for name in known_as} == known_as
