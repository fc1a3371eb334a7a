"""The protocol of the leaderboard as data: entries (a method and a backbone), columns (a federation), common rules.

The configurations to try in a column are a deterministic function of entry and column. What all entries share is a function of the column
alone: entries are compared on the same draws.
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
from fgl_bench.results.scored import DEFAULT_TASK, of_task
from fgl_bench.utils.files import home
from fgl_bench.utils.seeding import generator

FILE = Path(__file__).with_name("protocol.yaml")
FILES = {DEFAULT_TASK: FILE} | {path.stem.removeprefix("protocol_"): path for path in sorted(FILE.parent.glob("protocol_*.yaml"))}
"""The file of each task's protocol."""
NATURAL = "natural"
UNKNOWN = "unknown"  # width and depth of a backbone that the protocol does not know

Space = Mapping[str, Sequence[Any]]  # choices by key, the default first; values of combined keys are lists


@dataclass(frozen=True)
class Entry:
    """A method with a backbone.

    Attributes:
        name: name in files and rows: ``fedgta``, or ``fedgta-gamlp`` if the backbone is not the protocol's.
        algorithm: choice of the group ``algorithm``, or the class of an external method.
        model: choice of the group ``model``.
        shared: tuned keys of all entries, with the backbone's width and depth; empty without tuning.
        own: tuned keys of the method.
        overrides: overrides that choose the method and its scenario.
        reference: True if it is not ranked.
        sums: checksums of the sources of an external method.
        expensive: True if its cells outside the protocol's ``dear_columns`` come last.
    """

    name: str
    algorithm: str
    model: str
    shared: Space = field(hash=False)
    own: Space = field(hash=False)
    overrides: tuple[str, ...]
    reference: bool = False
    sums: tuple[str, ...] = ()
    expensive: bool = False


@dataclass(frozen=True)
class BoardColumn:
    """A federation.

    Attributes:
        graph: the dataset; all columns of a graph together weigh one.
        trials: number of configurations tried in a cell.
    """

    key: str
    graph: str
    split: str
    trials: int
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """Rules for all entries of a task; ``protocol.yaml`` explains the attributes.

    Attributes:
        backbone: the backbone of entries that name none, and of those named by their method alone.
        setting: content of the preset of all runs.
        models: width and depth by backbone.
        changed: further keys of all runs; empty in the package's protocol.
    """

    version: int
    experiment: str
    setting: Mapping[str, Any]
    sampler_seed: int
    tuning_seeds: Sequence[int]
    test_seeds: Sequence[int]
    clients: int
    widen: Mapping[str, float]
    stragglers: Mapping[str, Any]
    scenarios: Mapping[str, Mapping[str, Any]]
    shared: Mapping[str, Any]
    models: Mapping[str, Space]
    dear_columns: Sequence[str]
    columns: tuple[BoardColumn, ...]
    entries: tuple[Entry, ...]
    changed: tuple[str, ...] = ()
    task: str = DEFAULT_TASK
    backbone: str = "gcn"

    @property
    def caption(self) -> str:
        """``, task=graph``; empty for the default task."""
        return of_task({"task": self.task})

    @property
    def folder(self) -> str:
        """Name of the folder of its cells, below ``results/leaderboard``."""
        return "_".join([*[self.task] * bool(self.caption), f"v{self.version}"])

    @property
    def ratio(self) -> float:
        """Test examples per training example; datasets without ratios in the preset have 0.4/0.2."""
        train, _, test = self.setting["split"].get("ratios") or (0.2, 0.4, 0.4)
        return test / train

    def digest(self, entry: Entry, column: BoardColumn) -> str:
        """Return twelve hex digits of the hash of the common rules, the entry and the column, which determine the scores of a cell."""
        rules = [self.version, self.experiment, self.setting, self.sampler_seed, self.tuning_seeds, self.test_seeds, self.clients]
        drawn = [self.widen, entry.shared, entry.own, column.key, column.graph, column.split, column.trials, column.overrides]
        what = [*rules, *drawn, *self.changed, entry.overrides, entry.model, entry.sums]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]

    def trials_of(self, entry: Entry, column: BoardColumn) -> list[dict[str, Any]]:
        """Return the different configurations to try in a cell, the default first; fewer than the column's trials if there are fewer.

        Shared keys are drawn from streams of the column, own keys from streams of entry and column.
        """
        stream: tuple[str | int, ...] = ("leaderboard", self.sampler_seed, column.key)
        keys = [(key, choices, stream) for key, choices in entry.shared.items()]
        keys += [(key, choices, (*stream, entry.name)) for key, choices in entry.own.items()]
        positions = [balanced(len(choices), column.trials, *axes, place) for place, (_, choices, axes) in enumerate(keys)]
        space = {key: choices for key, choices, _ in keys}
        trials = [configuration(space, chosen) for chosen in zip(*positions, strict=True)] or [{}]
        return [trial for number, trial in enumerate(trials) if trial not in trials[:number]]

    def widened(self, entry: Entry, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return ``values`` with the next learning rate beyond the choices of their optimizer; None if theirs is inside."""
        pairs = [pair for key, pairs in entry.shared.items() if key == "optimizer,lr" for pair in pairs]
        rates = [float(lr) for optimizer, lr in pairs if optimizer == values.get("optimizer")]
        rate = float(values.get("lr", math.nan))
        if not rates or min(rates) < rate < max(rates):
            return None
        factor = self.widen["lr"] if rate >= max(rates) else 1 / self.widen["lr"]
        return {**values, "lr": float(f"{rate * factor:.3g}")}

    def overrides(self, entry: Entry, column: BoardColumn, values: Mapping[str, Any], seeds: Sequence[int]) -> list[str]:
        """Return the command-line arguments of a run."""
        number = [] if column.split == NATURAL else [f"num_clients={self.clients}"]
        outside = bool(entry.sums)  # its keys are added to those of the replaced choice
        chosen = [f"{'++' if outside and key.startswith('algorithm.') else ''}{key}={plain(value)}" for key, value in values.items()]
        setting = [f"experiment={self.experiment}", f"dataset={column.graph}", f"split={column.split}", *number, *column.overrides]
        return [*setting, *entry.overrides, f"model={entry.model}", *self.changed, *chosen, f"seeds={shown(list(seeds))}"]

    def later(self, entry: Entry, column: BoardColumn) -> bool:
        """Return True if the cell is too expensive to be computed with the others."""
        return entry.expensive and column.key not in self.dear_columns

    def scenario_keys(self, scenario: str) -> list[str]:
        """Return the overrides of a scenario: the stragglers of all, and its own keys."""
        return [f"scenario.{key}={value}" for key, value in {**self.stragglers, **self.scenarios.get(scenario, {})}.items()]

    def narrowed(self, columns: Sequence[str], methods: Sequence[str]) -> tuple[list[BoardColumn], list[Entry]]:
        """Return the named columns and the entries of the methods; an empty list selects all.

        A method selects its entries on all backbones; ``fedgta-gcn`` selects one.

        Raises:
            UserError: a name is unknown.
        """
        full = {entry: f"{entry.algorithm}-{entry.model}" for entry in self.entries}
        check_known("columns", columns, {column.key for column in self.columns})
        short = {name for entry in self.entries for name in (entry.algorithm, entry.name)}
        check_known("methods", [name for name in methods if name not in full.values()], short)
        chosen = [column for column in self.columns if not columns or column.key in columns]
        return chosen, [entry for entry in self.entries if not methods or {entry.algorithm, entry.name, full[entry]} & set(methods)]


def check_known(key: str, given: Sequence[str], known: Collection[str]) -> None:
    """Raise UserError for a name that is not in the leaderboard."""
    for name in given:
        if name not in known:
            raise UserError(f"{key}={name[:60]}: not in the leaderboard{suggest(name, known)}")


def read_protocol(path: Path = FILE) -> Protocol:
    """Read a protocol, by default that of node classification; raises UserError for an invalid file."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        preset = config_folder() / "experiment" / f"{content['experiment']}.yaml"
        setting = yaml.safe_load(preset.read_text(encoding="utf-8"))
        check_numbers(content, path)
        columns = [BoardColumn(key, **{**what, "overrides": tuple(what.get("overrides", ()))}) for key, what in content["columns"].items()]
        common = ("version", "experiment", "sampler_seed", "tuning_seeds", "test_seeds", "clients")
        rules = {key: content[key] for key in (*common, "widen", "stragglers", "scenarios", "shared", "models", "dear_columns")}
        rules |= {key: content[key] for key in ("task", "backbone") if key in content}
        protocol = Protocol(**rules, setting=setting, columns=tuple(columns), entries=(), changed=tuple(content.get("changed", ())))
        named = [(name, what, True) for name, what in content["references"].items()]
        named += [(name, what, False) for name, what in content["methods"].items()]
        entries = tuple(entry for each in named for entry in entries_of(protocol, *each))
        return Protocol(**{**vars(protocol), "entries": entries})
    except (OSError, yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: no protocol of a leaderboard ({type(error).__name__}: {' '.join(str(error).split())[:100]})") from error


def asked_protocol(asked: Mapping[str, str]) -> Protocol:
    """Read the protocol that the arguments ``protocol=FILE`` or ``task=NAME`` of a command name, by default that of node classification.

    Raises:
        UserError: the task has no protocol, or the file is invalid.
    """
    task = asked.get("task", DEFAULT_TASK)
    if task not in FILES:
        raise UserError(f"task={task[:60]}: has no leaderboard{suggest(task, FILES)}")
    return read_protocol(home("protocol", asked["protocol"]) if asked.get("protocol") else FILES[task])


def check_numbers(content: Mapping[str, Any], path: Path) -> None:
    """Check numbers of trials, clients and seeds; raises UserError."""
    numbers = {"clients": content["clients"], **{f"columns.{key}.trials": column["trials"] for key, column in content["columns"].items()}}
    for key, number in numbers.items():
        if type(number) is not int or number < 1:
            raise UserError(f"{path.name}: {key}={number}: must be an integer of at least 1")
    tuning, test = content["tuning_seeds"], content["test_seeds"]
    for key, seeds in (("tuning_seeds", tuning), ("test_seeds", test)):
        if not isinstance(seeds, list) or len(seeds) < 2 or len(set(seeds)) < len(seeds) or any(type(s) is not int or s < 0 for s in seeds):
            raise UserError(f"{path.name}: {key}={seeds}: must be a list of at least two different seeds")
    both = set(tuning) & set(test)
    if both:
        raise UserError(f"{path.name}: tuning_seeds and test_seeds share {min(both)}; winners are scored on seeds of their own")


def entries_of(protocol: Protocol, name: str, what: Mapping[str, Any], reference: bool) -> list[Entry]:
    """Return an entry per backbone of a method."""
    algorithm, scenario, tuned = what.get("algorithm", name), what.get("scenario", "sync"), what.get("tuned", True)
    overrides = (f"algorithm={algorithm}", *what.get("overrides", ()), *protocol.scenario_keys(scenario))
    own, expensive = space_of(what.get("space", {}), name), what.get("dear", [])
    return [
        Entry(
            name=name if model == protocol.backbone else f"{name}-{model}",
            algorithm=algorithm,
            model=model,
            shared=shared_of(protocol, model) if tuned is True else {},
            own=own,
            overrides=overrides,
            reference=reference,
            expensive=expensive is True or model in (expensive or []),
        )
        for model in what.get("models", [protocol.backbone])
    ]


def shared_of(protocol: Protocol, model: str) -> Space:
    """Return the tuned keys of all entries on a backbone. A backbone that the protocol does not know keeps its width and depth."""
    lists = {key: choices for key, choices in protocol.shared.items() if isinstance(choices, list)}
    counts = [count for count in protocol.shared.values() if isinstance(count, int)]
    keys = protocol.models.get(model, {f"{UNKNOWN}{place}": [None] * count for place, count in enumerate(counts)})
    if [len(choices) for choices in keys.values()] != counts:
        raise UserError(f"models.{model}: must have {' and '.join(map(str, counts))} choices, as shared says")
    return {**lists, **keys}


def space_of(content: object, where: str) -> dict[str, list[Any]]:
    """Return choices by key from a mapping of keys to lists.

    Raises:
        UserError: the mapping is invalid.
    """
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: a space has a line for every key, such as algorithm.mu: [0.01, 0.1], the default first")
    space = {}
    for key, values in content.items():
        if not isinstance(values, list) or not values:
            raise UserError(f"{where}: {key}: must be a list of choices, the default first")
        width = len(names(str(key)))
        if width > 1 and not all(isinstance(value, list) and len(value) == width for value in values):
            raise UserError(f"{where}: {key}: every choice is a list of {width} values")
        space[str(key)] = list(values)
    return space


def names(key: str) -> list[str]:
    """Split combined keys: ``optimizer,lr`` to ``[optimizer, lr]``."""
    return [part.strip() for part in key.split(",")]


def balanced(choices: int, trials: int, *stream: str | int) -> list[int]:
    """Return a place among ``choices`` for every trial: 0 for the default, then one random order of all places after another."""
    orders = (generator(0, *stream, block).permutation(choices).tolist() for block in itertools.count())
    return [0, *itertools.islice(itertools.chain.from_iterable(orders), trials - 1)]


def configuration(space: Space, places: Sequence[int]) -> dict[str, Any]:
    """Return the values at these places, one for every key of ``space``, without the keys of an unknown backbone."""
    values: dict[str, Any] = {}
    for (key, choices), place in zip(space.items(), places, strict=True):
        chosen = choices[place]
        values |= dict(zip(names(key), chosen if "," in key else [chosen], strict=True))
    return {key: value for key, value in values.items() if not key.startswith(UNKNOWN)}
