"""The subject of a check (a class in a user's file, or a choice of a group), its small configuration, and the trial of its promises.

A case is a promise in words, and a function that checks it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.config.choices import choices, file_of, path_of
from fgl_bench.config.compose import Composer
from fgl_bench.config.groups import imported
from fgl_bench.config.own_classes import class_in
from fgl_bench.data.splits.base import Split
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone
from fgl_bench.runner.validation import validate
from fgl_bench.scenarios.hooks import check_hooks, supported

KINDS: dict[str, type] = {"algorithm": Algorithm, "model": Backbone, "split": Split}
BASES = {"algorithm": "fedavg", "model": "gcn", "split": "metis"}
SEEDS, CLIENTS, ROUNDS = (0, 1), 4, 4
GRAPH = (
    "dataset=csbm", "dataset.num_nodes=160", "dataset.num_edges=350", "dataset.num_features=16", "dataset.words_per_node=5",
    "dataset.num_classes=3",
)  # fmt: skip
SMALL = ("trips=null", "local_epochs=2", f"seeds=[{','.join(map(str, SEEDS))}]", "dtype=float64", "device=cpu", "progress=false")
HIDDEN = 8
# Values for keys of a user's class that have no defaults.
USUAL = {
    "hidden": HIDDEN, "layers": 2, "dropout": 0.5,
    "ratios": None, "per_seed": ["partition", "masks"], "test": "clients", "inductive": False,
}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """Attributes: the printed name; the group; the choice, or None for a user's class; that class, or None."""

    name: str
    group: str
    choice: str | None = None
    own: type | None = None


def find(name: str, folders: Sequence[Path] = ()) -> Subject:
    """Find the subject ``FILE.py``, ``FILE.py:Class``, ``model/gat`` or ``gat`` (an algorithm, or a choice of only one group).

    Raises:
        UserError: the class or choice does not exist.
    """
    if name.partition(":")[0].endswith(".py"):
        own = load(name)
        return Subject(own.__name__, next(group for group, kind in KINDS.items() if issubclass(own, kind)), own=own)
    if "/" not in name and "=" not in name:
        name = f"{next((group for group in KINDS if name in choices(group, folders)), 'algorithm')}/{name}"
    group, choice, _ = file_of(name, folders)
    if group not in KINDS:
        raise UserError(f"{name}: is a choice of {group}; check tries choices of {', '.join(KINDS)}")
    return Subject(choice, group, choice)


def load(name: str) -> type:
    """Load the class in a file: the one named after a colon, else the only method of the file, else backbone, else split."""
    return class_in(name, [*KINDS.values()])


def load_method(name: str) -> type[Algorithm]:
    """Load the method in a file; raises UserError for another class."""
    method = load(name)
    if not issubclass(method, Algorithm):
        raise UserError(f"{name}: {method.__name__} is no method; it must derive from a base such as fgl_bench.ServerRounds")
    check_hooks(method)
    return method


def composed(subject: Subject, overrides: Sequence[str], small: Sequence[str] = (), folders: Sequence[Path] = ()) -> DictConfig:
    """Compose the small configuration of the subject.

    A method runs with its own scenario, and with the split and backbone in its ``pairing``. A user's class
    replaces a choice without inheriting its keys. ``overrides`` take precedence.
    """
    mine, rest = [], list(overrides)
    if subject.own is not None:
        keys = (f"{subject.group}.", f"+{subject.group}.")
        mine, rest = ([text for text in overrides if text.startswith(keys) is own] for own in (True, False))
    chosen = [f"{subject.group}={subject.choice or BASES[subject.group]}"]
    if subject.group != "algorithm":
        chosen.append("algorithm=fedavg")
    given = {text.partition("=")[0] for text in rest}
    compose = Composer(folders)
    if subject.own is not None:
        chosen += paired(subject.own, given, scenario=True)
    elif subject.group == "algorithm":  # overrides may set keys that only the paired choices have
        target = OmegaConf.select(OmegaConf.load(path_of(subject.group, str(subject.choice), folders)), "_target_")
        chosen += paired(imported("algorithm", target or compose(chosen).algorithm._target_), given)
    graph = () if given & {"dataset", "task"} else GRAPH  # a task has a data set of its own
    cfg = compose([*chosen, *graph, *SMALL, *small, *rest])
    if subject.own is not None:
        OmegaConf.set_struct(cfg, False)
        cfg[subject.group] = own_node(subject.own, mine, subject.group)
    if isinstance(cfg.model.get("hidden"), int) and not any(text.lstrip("+").startswith("model.hidden=") for text in overrides):
        cfg.model.hidden = HIDDEN
    validate(cfg)
    return cfg


def paired(cls: Any, given: Collection[str], scenario: bool = False) -> list[str]:
    """Return a method's designated choices (``pairing``), with ``scenario`` also its first scenario, except for groups in ``given``."""
    pairs, scenarios = dict(getattr(cls, "pairing", {})), supported(cls) if scenario else []
    if scenarios:
        pairs["scenario"] = scenarios[0]
    return [f"{group}={choice}" for group, choice in pairs.items() if group not in given]


def own_node(cls: type, overrides: Sequence[str], group: str) -> dict[str, Any]:
    """Return the config node of a user's class: given keys, and usual values of keys without a default."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    bare = [f.name for f in fields if f.init and f.default is f.default_factory is dataclasses.MISSING]
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    given = {str(one.key_or_group).removeprefix(f"{group}."): one.value() for one in parsed}
    return {"_target_": f"{cls.__module__}.{cls.__name__}", **{key: USUAL[key] for key in bare if key in USUAL}, **given}


Cases = Mapping[str, Callable[[Any], str | None]]


class Broken(AssertionError):
    """Raised for a broken promise, with details as message; ``last`` stops further checks."""

    def __init__(self, message: str, last: bool = False):
        super().__init__(message)
        self.last = last


class Untried(Exception):
    """Raised if a promise does not apply; the message is the reason."""


def tried(name: str, cases: Cases, subject: object) -> int:
    """Check every case on ``subject`` and print a line for each; the function may return a note.

    Returns:
        0, or 1 if a promise is broken.
    """
    broken = 0
    for words, check in cases.items():
        try:
            note = check(subject)
            print(f"  kept    {words}{f' ({note})' if note else ''}")
        except Untried as reason:
            print(f"  untried {words}: {reason}")
        except Broken as reason:
            broken += 1
            print(f"  BROKEN  {words}: {reason}")
            if reason.last:
                break
    print(f"{name}: {'keeps all promises' if not broken else f'{broken} promise(s) broken'}")
    return int(bool(broken))
