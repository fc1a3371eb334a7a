"""The protocol of the leaderboard as data: entries (a method and a backbone), columns (a dataset and a split), and what all are given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.config.choices import config_folder, suggest
from fgl_bench.config.values import plain, shown
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.search_space import Space, drawn, space_of

FILE = Path(__file__).with_name("protocol.yaml")
NATURAL = "natural"


@dataclass(frozen=True)
class Entry:
    """A method with a backbone.

    Attributes:
        name: of its files and rows; ``fedgta``, or ``fedgta-gamlp`` where the backbone is not GCN.
        algorithm: choice of the group ``algorithm``; of a method from outside the package its class.
        model: choice of the group ``model``.
        space: what is tuned, shared keys first; empty where nothing is.
        overrides: what chooses the method.
        sums: of the sources of a method from outside the package.
    """

    name: str
    algorithm: str
    model: str
    space: Space = field(hash=False)
    overrides: tuple[str, ...]
    sums: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardColumn:
    """A dataset and how it is divided among clients."""

    dataset: str
    split: str

    @property
    def key(self) -> str:
        return f"{self.dataset}-{self.split}"


@dataclass(frozen=True)
class Protocol:
    """What every entry is given; ``protocol.yaml`` explains the attributes.

    Attributes:
        setting: of every run: the content of the preset.
        changed: further keys of every run; the package's own protocol has none.
    """

    experiment: str
    setting: Mapping[str, Any]
    trials: int
    sampler_seed: int
    tuning_seeds: Sequence[int]
    test_seeds: Sequence[int]
    clients: int
    columns: tuple[BoardColumn, ...]
    shared: Space
    entries: tuple[Entry, ...]
    changed: tuple[str, ...] = ()

    def digest(self, entry: Entry) -> str:
        """Twelve hex digits of all that decides the entry's scores in a column: the rules that hold for all, and the entry."""
        rules = [self.experiment, self.setting, self.trials, self.sampler_seed, self.tuning_seeds, self.test_seeds, self.clients]
        what = [*rules, *self.changed, entry.overrides, entry.model, entry.space, entry.sums]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]

    def trials_of(self, entry: Entry, column: BoardColumn) -> list[dict[str, Any]]:
        """The configurations that are tried in a cell, the defaults first."""
        return drawn(entry.space, self.trials, self.sampler_seed, entry.name, column.key)

    def overrides(self, entry: Entry, column: BoardColumn, values: Mapping[str, Any], seeds: Sequence[int]) -> list[str]:
        """The arguments of the command that makes a run."""
        number = [] if column.split == NATURAL else [f"num_clients={self.clients}"]
        outside = bool(entry.sums)  # keys of its own are added to those of the choice that it replaces
        chosen = [f"{'++' if outside and key.startswith('algorithm.') else ''}{key}={plain(value)}" for key, value in values.items()]
        setting = [f"experiment={self.experiment}", f"dataset={column.dataset}", f"split={column.split}", *number]
        return [*setting, *entry.overrides, f"model={entry.model}", *self.changed, *chosen, f"seeds={shown(list(seeds))}"]

    def narrowed(self, datasets: Sequence[str], methods: Sequence[str]) -> tuple[list[BoardColumn], list[Entry]]:
        """The columns of these datasets and the entries of these methods; all of none.

        A method stands for its entries on all its backbones; ``fedgta-gcn`` is one of several.

        Raises:
            UserError: a name is unknown.
        """
        full = {entry: f"{entry.algorithm}-{entry.model}" for entry in self.entries}
        check_known("datasets", datasets, {column.dataset for column in self.columns})
        short = {name for entry in self.entries for name in (entry.algorithm, entry.name)}
        check_known("methods", [name for name in methods if name not in full.values()], short)
        columns = [column for column in self.columns if not datasets or column.dataset in datasets]
        return columns, [entry for entry in self.entries if not methods or {entry.algorithm, full[entry]} & set(methods)]


def check_known(key: str, given: Sequence[str], known: Collection[str]) -> None:
    """Raise UserError for a name that is not in the leaderboard."""
    for name in given:
        if name not in known:
            raise UserError(f"{key}={name[:60]}: not in the leaderboard{suggest(name, known)}")


def read_protocol(path: Path = FILE) -> Protocol:
    """The protocol in a file, the package's own by default; raises UserError where the file cannot be one."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        preset = config_folder() / "experiment" / f"{content['experiment']}.yaml"
        setting = yaml.safe_load(preset.read_text(encoding="utf-8"))
        check_numbers(content, path)
        shared = space_of(content["shared"], f"{path.name}: shared")
        return Protocol(
            **{key: content[key] for key in ("experiment", "trials", "sampler_seed", "tuning_seeds", "test_seeds", "clients")},
            setting=setting,
            columns=tuple(BoardColumn(name, split) for split, datasets in content["columns"].items() for name in datasets),
            shared=shared,
            entries=tuple(entry for name, what in content["methods"].items() for entry in entries_of(name, what, shared)),
            changed=tuple(content.get("changed", ())),
        )
    except (OSError, yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: no protocol of a leaderboard ({type(error).__name__}: {' '.join(str(error).split())[:100]})") from error


def check_numbers(content: Mapping[str, Any], path: Path) -> None:
    """Numbers of trials, clients and seeds; raises UserError."""
    for key in ("trials", "clients"):
        if type(content[key]) is not int or content[key] < 1:
            raise UserError(f"{path.name}: {key}={content[key]}: must be an integer of at least 1")
    tuning, test = content["tuning_seeds"], content["test_seeds"]
    for key, seeds in (("tuning_seeds", tuning), ("test_seeds", test)):
        if not isinstance(seeds, list) or not seeds or len(set(seeds)) < len(seeds) or any(type(s) is not int or s < 0 for s in seeds):
            raise UserError(f"{path.name}: {key}={seeds}: must be a list of different seeds")
    both = set(tuning) & set(test)
    if both:
        raise UserError(f"{path.name}: tuning_seeds and test_seeds share {min(both)}; winners are scored on seeds of their own")


def entries_of(algorithm: str, what: Mapping[str, Any], shared: Space) -> list[Entry]:
    """An entry for every backbone of a method."""
    own = space_of(what.get("space", {}), algorithm)
    space = {**shared, **own} if what.get("tuned", True) else {}
    return [
        Entry(algorithm if model == "gcn" else f"{algorithm}-{model}", algorithm, model, space, (f"algorithm={algorithm}",))
        for model in what.get("models", ["gcn"])
    ]
