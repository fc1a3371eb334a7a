"""Configuration: every yaml composes, types are those of the classes, cross-field rules, names, building, trackers."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import ConfigCompositionException
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.cross_client.fedaas import FedAAS
from fgl_bench.config.groups import ROLES, build, build_group, check_node, label
from fgl_bench.config.identity import MODULES, canonical
from fgl_bench.config.schema import register_all
from fgl_bench.config.settings import check_numbers, resolve_budget
from fgl_bench.config.values import check_values
from fgl_bench.data.datasets.base import Dataset
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone
from fgl_bench.results.store import config_hash
from fgl_bench.results.trackers.base import Tracker
from fgl_bench.utils.participation import participants

CONF = Path(__file__).parents[1] / "conf"
PACKAGE = Path(__file__).parents[1] / "src" / "fgl_bench"
NO_GROUPS = ("config.yaml", "by_dataset")
YAMLS = sorted(path for found in CONF.rglob("[!_]*.yaml") if (path := found.relative_to(CONF)).parts[0] not in NO_GROUPS)


@pytest.fixture(scope="module", autouse=True)
def hydra_ready() -> Iterator[None]:
    register_all(ConfigStore.instance())
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def composed(*overrides: str) -> DictConfig:
    return compose("config", list(overrides))


EXPERIMENTS = [path for path in YAMLS if path.parts[0] == "experiment"]
FOLDERS = [list(paths) for _, paths in groupby((path for path in YAMLS if path not in EXPERIMENTS), key=lambda path: path.parent)]


@pytest.mark.parametrize("paths", list(zip_longest(*FOLDERS)))
def test_every_yaml_composes_and_names_what_can_be_imported(paths: tuple[Path | None, ...]) -> None:
    """A choice of every group at a time."""
    given = [path for path in paths if path is not None]
    cfg = composed(*(f"{path.parent.as_posix()}={path.stem}" for path in given))
    for path in given:
        node = OmegaConf.select(cfg, ".".join(path.parent.parts))
        if isinstance(node, DictConfig) and path.parts[0] != "hydra":
            unset = OmegaConf.missing_keys(node)
            assert not unset, f"{path} leaves {unset} without a value"
            check_node(node)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=str)
def test_every_experiment_composes(path: Path) -> None:
    composed(f"experiment={path.relative_to('experiment').with_suffix('').as_posix()}")


CONTRACTS = {
    "algorithm": lambda cls: issubclass(cls, Algorithm),
    "model": lambda cls: issubclass(cls, Backbone),
    "dataset": lambda cls: issubclass(cls, Dataset),
    "split": lambda cls: hasattr(cls, "assign"),
    "scenario": lambda cls: hasattr(cls, "contract"),
    "scenario/sparsity": lambda cls: hasattr(cls, "apply"),
    "tracker": lambda cls: issubclass(cls, Tracker),
}


def classes_of(group: str) -> dict[str, type]:
    """The public dataclasses in the modules of the group's choices, by the names that stored results know them by."""
    folders = {name: folder.replace(".", "/") for name, folder in MODULES.items()}
    place = PACKAGE / {**folders, "scenario/sparsity": "data/sparsity.py", "tracker": "results/trackers"}[group]
    paths = [place] if place.is_file() else [path for path in place.rglob("[!_]*.py") if path.stem != "base"]
    modules = [importlib.import_module(".".join(("fgl_bench", *path.relative_to(PACKAGE).with_suffix("").parts))) for path in paths]
    public = [kind for module in modules for name, kind in vars(module).items() if isinstance(kind, type) and not name.startswith("_")]
    own = [kind for kind in public if "__dataclass_params__" in vars(kind) and kind.__module__ in {module.__name__ for module in modules}]
    return {canonical(f"{kind.__module__}.{kind.__name__}"): kind for kind in own}


@pytest.mark.parametrize("group", CONTRACTS)
def test_classes_and_yamls_are_twins(group: str) -> None:
    classes = classes_of(group)
    ablations = ("FedAAS1", "FedAAS2", "FedAll", "FedLocal")  # names of the same class
    classes |= {f"fgl_bench.algorithms.fedaas.{name}": FedAAS for name in ablations if group == "algorithm"}
    chosen = {name for name, cls in classes.items() if CONTRACTS[group](cls)}
    used = {canonical(yaml.safe_load(path.read_text(encoding="utf-8"))["_target_"]) for path in (CONF / group).glob("*.yaml")}
    assert used <= classes.keys(), f"yaml without a class: {used - classes.keys()}"
    bases = {name for name, cls in classes.items() if any(other is not cls and issubclass(other, cls) for other in classes.values())}
    assert chosen - bases <= used, f"class without a yaml in conf/{group}: {chosen - bases - used}"


@pytest.mark.parametrize("group", ["algorithm", "model", "scenario", "split"])
def test_a_yaml_is_called_like_its_module_or_is_a_variant_of_it(group: str) -> None:
    for path in (CONF / group).glob("*.yaml"):
        *_, module, name = canonical(yaml.safe_load(path.read_text(encoding="utf-8"))["_target_"]).split(".")
        names = (module.rstrip("_"), name.lower())
        assert path.stem in names or path.stem.startswith(f"{names[0]}_"), f"{path.name} is of {module}"


@pytest.mark.parametrize(
    ("choice", "mistake"),
    [
        ("algorithm=fedprox", "algorithm.nu=1"),
        ("algorithm=fedprox", "algorithm.mu=abc"),
        ("algorithm=fedaas1", "algorithm.batches=1.5"),
        ("algorithm=fedgl algorithm@algorithm.strategy=fedgta", "algorithm.strategy.alpha=abc"),
        ("model=gcn", "model.hidden=null"),
        ("scenario=semi_async", "scenario.lag=[1,abc]"),
        ("tracker=wandb", "tracker.project=[abc]"),
    ],
)
def test_unknown_keys_and_wrong_types_are_refused(choice: str, mistake: str) -> None:
    with pytest.raises((ConfigCompositionException, UserError), match=mistake.partition("=")[0].rpartition(".")[2]):
        check_node(composed(*choice.split(), mistake)[mistake.partition(".")[0]])


@pytest.mark.parametrize("name", ["FedAAS1", "FedAAS2", "FedAll", "FedLocal"])
def test_a_variant_is_the_class_with_other_keys_and_keeps_its_name(name: str) -> None:
    cfg, usual = composed(f"algorithm={name.lower()}"), composed("algorithm=fedaas").algorithm
    assert type(build(cfg.algorithm)) is FedAAS
    assert canonical(cfg.algorithm._target_) == f"fgl_bench.algorithms.fedaas.{name}" and label(cfg, "algorithm") == name.lower()
    assert cfg.algorithm.keys() == usual.keys() and cfg.algorithm != usual


def test_a_whole_number_is_the_same_run_with_and_without_a_point() -> None:
    one, other, true = (config_hash({"algorithm": {"mu": value, "of": [value]}}) for value in (1, 1.0, True))
    assert one == other != true != config_hash({"algorithm": {"mu": 1.5, "of": [1]}})
    built = build(composed("algorithm=fedprox", "algorithm.mu=1").algorithm)
    assert repr(built.mu) == "1.0"


def test_a_yaml_of_ones_own_has_the_types_of_the_package_s_class(tmp_path: Path) -> None:
    target = "_target_: fgl_bench.algorithms.fedprox.FedProx\n"
    (tmp_path / "algorithm").mkdir()
    for name, keys in {"fine": "mu: 1", "typo": "mu: 1\nmue: 1", "words": "mu: abc", "no_class": "mu: 1"}.items():
        text = target.replace("FedProx", "Nothing" if name == "no_class" else "FedProx") + keys
        (tmp_path / "algorithm" / f"{name}.yaml").write_text(text, encoding="utf-8")
    own = f"hydra.searchpath=[file://{tmp_path}]"
    assert repr(build(composed(own, "algorithm=fine").algorithm).mu) == "1.0"
    for name in ("typo", "words"):
        with pytest.raises(UserError, match="algorithm.mu"):
            check_node(composed(own, f"algorithm={name}").algorithm)
    with pytest.raises(UserError, match="no attribute 'Nothing'"):
        check_node(composed(own, "algorithm=no_class").algorithm)


def test_method_chooses_its_scenario_and_the_command_line_wins() -> None:
    assert label(composed("algorithm=fedavg"), "scenario") == "sync"
    assert label(composed("algorithm=fedsa_gcl"), "scenario") == "semi_async"
    assert label(composed("algorithm=fedsa_gcl", "scenario=sync"), "scenario") == "sync"
    both = composed("algorithm=fedsa_gcl", "scenario/sparsity=label")
    assert (label(both, "scenario"), label(both, "scenario/sparsity")) == ("semi_async", "label")
    assert label(composed(), "scenario/sparsity") == "none"


@given(st.integers(1, 60), st.floats(0.01, 1), st.integers(1, 3000))
def test_rounds_and_trips_derive_each_other(clients: int, participation: float, amount: int) -> None:
    cfg = OmegaConf.create({"num_clients": clients, "participation": participation, "rounds": None, "trips": amount, "unseen_clients": 0.0})
    each = participants(participation, clients)
    assert 1 <= each <= clients
    rounds, trips = resolve_budget(cfg)
    assert trips == amount and (rounds - 1) * each < amount <= rounds * each
    cfg.rounds = rounds
    assert resolve_budget(cfg) == (rounds, trips)  # both given and in agreement
    cfg.trips = None
    assert resolve_budget(cfg) == (rounds, rounds * each)
    cfg.trips = rounds * each + 1
    with pytest.raises(UserError, match="contradict"):
        resolve_budget(cfg)


def test_default_budget_is_two_thousand_trips() -> None:
    assert resolve_budget(composed()) == (100, 2000)
    assert resolve_budget(composed("num_clients=10", "participation=0.5")) == (400, 2000)
    assert resolve_budget(composed("rounds=5", "num_clients=10")) == (5, 50)


@dataclass
class Toy:
    """Stands for a class of a user's own."""

    rate: float
    kind: Literal["a", "b"]
    names: list[str]
    extra: int | None = None

    def __post_init__(self) -> None:
        if math.isclose(self.rate, 13):
            raise ValueError("13 is unlucky")


def node(**values: object) -> DictConfig:
    return OmegaConf.create({"algorithm": {"_target_": f"{__name__}.Toy", **values}}).algorithm


def test_build_gives_the_object_with_plain_values() -> None:
    built = build(node(rate=0.5, kind="a", names=["x"]))
    assert built == Toy(0.5, "a", ["x"]) and type(built.names) is list


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 1, "kind": "a"}, "algorithm.names is missing"),
        ({"rate": 1, "kind": "a", "names": [], "other": 1}, "algorithm.other: unknown key; Toy has rate, kind, names, extra"),
        ({"rate": "x", "kind": "a", "names": []}, "algorithm.rate=x: 'x' is not a number"),
        ({"rate": 1, "kind": "c", "names": []}, "algorithm.kind=c: must be one of a, b"),
        ({"rate": 1, "kind": "a", "names": "x"}, "algorithm.names=x: must be a list"),
        ({"rate": 1, "kind": "a", "names": [], "extra": 0.5}, "algorithm.extra=0.5: '0.5' is not an integer"),
        ({"rate": 13, "kind": "a", "names": []}, "algorithm: 13 is unlucky"),
    ],
)
def test_build_refuses_by_the_key_s_name(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        build(node(**values))


def test_an_object_of_another_group_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"algorithm\._target_=os\.getcwd: gives a str, not a method \(derived from fgl_bench's Algorithm\)"
    ):
        build_group(OmegaConf.create({"algorithm": {"_target_": "os.getcwd"}}), "algorithm")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": list(range(1000))}, None),
        ({"seeds": list(range(1001))}, "seeds"),
        ({"dataset": {"homophily": math.nan}}, "dataset.homophily=nan"),
    ],
)
def test_lists_have_at_most_a_thousand_values_and_numbers_are_finite(change: dict[str, object], said: str | None) -> None:
    cfg = OmegaConf.merge(composed(), change)
    with pytest.raises(UserError, match=said) if said else nullcontext():
        check_values(cfg)
        check_numbers(cfg)


def test_every_group_has_a_default() -> None:
    cfg = composed()
    assert all(OmegaConf.select(cfg, f"{group}._target_") for group in ROLES)
