"""The protocol of the leaderboard as data: entries (a method and a backbone), columns (a dataset and a split), common rules.

The configurations to try in a column are a deterministic function of entry and column.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.config.choices import config_folder, suggest
from fgl_bench.config.values import plain, shown
from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import derive_seed

FILE = Path(__file__).with_name("protocol.yaml")
NATURAL = "natural"


@dataclass(frozen=True)
class Entry:
    """A method with a backbone.

    Attributes:
        name: name in files and rows: ``fedgta``, or ``fedgta-gamlp`` if the backbone is not GCN.
        algorithm: choice of the group ``algorithm``, or the class of an external method.
        model: choice of the group ``model``.
        space: tuned keys, shared ones first; empty without tuning.
        overrides: overrides that choose the method.
        sums: checksums of the sources of an external method.
    """

    name: str
    algorithm: str
    model: str
    space: Space = field(hash=False)
    overrides: tuple[str, ...]
    sums: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardColumn:
    """A dataset and its split."""

    dataset: str
    split: str

    @property
    def key(self) -> str:
        return f"{self.dataset}-{self.split}"


@dataclass(frozen=True)
class Protocol:
    """Rules for all entries; ``protocol.yaml`` explains the attributes.

    Attributes:
        setting: content of the preset of all runs.
        changed: further keys of all runs; empty in the package's protocol.
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
        """Return twelve hex digits of the hash of the common rules and the entry, which determine its scores in a column."""
        rules = [self.experiment, self.setting, self.trials, self.sampler_seed, self.tuning_seeds, self.test_seeds, self.clients]
        what = [*rules, *self.changed, entry.overrides, entry.model, entry.space, entry.sums]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]

    def trials_of(self, entry: Entry, column: BoardColumn) -> list[dict[str, Any]]:
        """Return the configurations to try in a cell, the defaults first."""
        return drawn(entry.space, self.trials, self.sampler_seed, entry.name, column.key)

    def overrides(self, entry: Entry, column: BoardColumn, values: Mapping[str, Any], seeds: Sequence[int]) -> list[str]:
        """Return the command-line arguments of a run."""
        number = [] if column.split == NATURAL else [f"num_clients={self.clients}"]
        outside = bool(entry.sums)  # its keys are added to those of the replaced choice
        chosen = [f"{'++' if outside and key.startswith('algorithm.') else ''}{key}={plain(value)}" for key, value in values.items()]
        setting = [f"experiment={self.experiment}", f"dataset={column.dataset}", f"split={column.split}", *number]
        return [*setting, *entry.overrides, f"model={entry.model}", *self.changed, *chosen, f"seeds={shown(list(seeds))}"]

    def narrowed(self, datasets: Sequence[str], methods: Sequence[str]) -> tuple[list[BoardColumn], list[Entry]]:
        """Return the columns of the datasets and the entries of the methods; an empty list selects all.

        A method selects its entries on all backbones; ``fedgta-gcn`` selects one.

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
    """Read a protocol, by default the package's; raises UserError for an invalid file."""
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
    """Check numbers of trials, clients and seeds; raises UserError."""
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
    """Return an entry per backbone of a method."""
    own = space_of(what.get("space", {}), algorithm)
    space = {**shared, **own} if what.get("tuned", True) else {}
    return [
        Entry(algorithm if model == "gcn" else f"{algorithm}-{model}", algorithm, model, space, (f"algorithm={algorithm}",))
        for model in what.get("models", ["gcn"])
    ]


MOST = 100_000  # configurations per space

Space = Mapping[str, Sequence[Any]]  # choices by key, the default first; values of combined keys are lists


def space_of(content: object, where: str) -> dict[str, list[Any]]:
    """Return choices by key from a mapping in the form of ``fgl-bench tune``; empty for None.

    Raises:
        UserError: the mapping is invalid.
    """
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: a space has a line for every key, such as algorithm.mu: {{choices: [0.01, 0.1]}}")
    space = {}
    for key, bounds in content.items():
        values = bounds.get("choices") if isinstance(bounds, Mapping) and set(bounds) == {"choices"} else None
        if not isinstance(values, list) or not values:
            raise UserError(f"{where}: {key}: the leaderboard draws from {{choices: [...]}}, the default first")
        width = len(names(str(key)))
        if width > 1 and not all(isinstance(value, list) and len(value) == width for value in values):
            raise UserError(f"{where}: {key}: every choice is a list of {width} values")
        space[str(key)] = list(values)
    if size(space) > MOST:
        raise UserError(f"{where}: {size(space)} configurations; at most {MOST} are allowed")
    return space


def names(key: str) -> list[str]:
    """Split combined keys: ``optimizer,lr`` to ``[optimizer, lr]``."""
    return [part.strip() for part in key.split(",")]


def size(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def drawn(space: Space, trials: int, *axes: str | int) -> list[dict[str, Any]]:
    """Return the distinct configurations to try: the defaults first, then others in the order of hashes of ``axes``.

    Fewer than ``trials`` if the space is smaller.
    """
    others = sorted(range(1, size(space)), key=lambda number: derive_seed(0, "leaderboard", *axes, number))
    return [configuration(space, number) for number in [0, *others[: trials - 1]]]


def configuration(space: Space, number: int) -> dict[str, Any]:
    """Return configuration ``number``: 0 has the first choice of every key, and the last key varies fastest."""
    chosen = next(itertools.islice(itertools.product(*space.values()), number, None))
    pairs = [zip(names(key), value if "," in key else [value], strict=True) for key, value in zip(space, chosen, strict=True)]
    return dict(itertools.chain.from_iterable(pairs))
