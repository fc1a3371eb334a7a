"""A cell of the leaderboard as a small text file: validation scores of its trials, test scores of its default and its winner."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol
from fgl_bench.results.cells import warn
from fgl_bench.results.shapes import flaw, refused
from fgl_bench.utils.files import write_whole

VERSION = 2
NUMBERS = re.compile(r"\[(\n[-+.\deE,\snul]*)\]")  # a list of numbers in JSON


@dataclass(frozen=True)
class Trial:
    """A configuration and its validation scores. It has no test score, since winners are chosen among trials.

    Attributes:
        values: by key, including defaults.
        validation: scores of the tuning seeds by model, ``received`` and ``trained``; None if a seed diverged.
        problem: reason for missing scores; empty if there are scores.
    """

    number: int
    values: Mapping[str, Any]
    validation: Mapping[str, list[float | None]]
    seconds: float
    problem: str = ""

    def lower(self, model: str) -> float | None:
        """Return the mean over the tuning seeds minus its standard error; None if a seed has no score."""
        scores = [score for score in self.validation.get(model, []) if score is not None]
        if len(scores) < 2 or len(scores) < len(self.validation[model]):
            return None
        return mean(scores) - stdev(scores) / math.sqrt(len(scores))


class Choice(NamedTuple):
    """A trial, and the kind of model that validates better in it."""

    trial: Trial
    model: str


@dataclass(frozen=True)
class Scored:
    """A configuration, run once with the test seeds.

    Attributes:
        trial: number of the trial.
        model: the kind of model that validates better, whose scores are primary.
        scores: test scores of the seeds by kind of model; None if the seed diverged.
        fairness: primary scores over the clients: worst, lowest tenth, median, best, standard deviation.
        bytes: bytes up and down per seed.
        trips: client trips per seed.
        time: virtual time of a seed, mean.
        local_epochs: per client trip.
        curve: at some evaluation points, means over the seeds: ``trips``, ``time``, ``megabytes``, ``val``, ``test`` (primary).
    """

    trial: int
    model: str
    scores: Mapping[str, list[float | None]]
    fairness: Mapping[str, float | None]
    bytes: Mapping[str, int]
    trips: int
    time: float
    local_epochs: int
    seconds: float
    curve: Mapping[str, list[float]]
    config_hash: str
    command: str
    finished: str


@dataclass
class Record:
    """A cell: an entry in a column.

    Attributes:
        protocol: digest of the protocol, entry and column.
        column: key of the column.
        planned: number of trials that the protocol draws; more follow where it widens the space.
        default, tuned: scores of the first trial and of the winner.
        facts: metric, scenario, clients, versions, device and code of the latest run.
    """

    protocol: str
    entry: str
    algorithm: str
    model: str
    column: str
    planned: int
    trials: list[Trial] = field(default_factory=list)
    default: Scored | None = None
    tuned: Scored | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, protocol: Protocol, entry: Entry, column: BoardColumn) -> Record:
        names = (entry.name, entry.algorithm, entry.model, column.key)
        return cls(protocol.digest(entry, column), *names, len(protocol.trials_of(entry, column)))

    @property
    def complete(self) -> bool:
        """Return True if all trials are done, and the default and the winner are scored as far as they can be."""
        scored = self.tuned is not None or self.best() is None
        return len(self.trials) >= self.planned and scored and (self.default is not None or choose(self.trials[:1]) is None)

    def best(self) -> Choice | None:
        """Return the winner: the highest lower bound of a trial and kind of model, the earliest of ties; None without scores."""
        return choose(self.trials)

    def next_values(self, protocol: Protocol, entry: Entry, column: BoardColumn) -> dict[str, Any] | None:
        """Return the configuration of the next trial; None if there is none.

        After the planned trials, the winner's configuration with the next learning rate, where the winner's is at an edge: until such a
        trial does not win, or the protocol's number of them is done.
        """
        done = len(self.trials)
        if done < self.planned:
            return protocol.trials_of(entry, column)[done]
        best = self.best()
        if best is None or done >= self.planned + int(protocol.widen["trials"]):
            return None
        values = protocol.widened(entry, best.trial.values)
        return None if values is None or any(dict(trial.values) == values for trial in self.trials) else values


def choose(trials: Iterable[Trial]) -> Choice | None:
    """Return the best of trials and kinds of model by :meth:`Trial.lower`, the earliest of ties; None without scores."""
    bounds = [(bound, Choice(trial, model)) for trial in trials for model in MODELS if (bound := trial.lower(model)) is not None]
    return max(bounds, key=lambda pair: pair[0])[1] if bounds else None


def path_of(folder: Path, entry: str, column: str) -> Path:
    """``<folder>/<column>/<entry>.json``."""
    return folder / column / f"{entry}.json"


def write_record(folder: Path, record: Record) -> Path:
    """Write a cell atomically, with one line per key and list of numbers."""
    path = path_of(folder, record.entry, record.column)
    text = json.dumps({"version": VERSION, **asdict(record)}, indent=1, allow_nan=False)
    write_whole(path, NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]", text) + "\n")
    return path


def read_record(path: Path) -> Record:
    """Read the cell in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a valid cell.
    """
    content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refused)
    if not isinstance(content, dict) or content.pop("version", None) != VERSION:
        raise ValueError(f"no cell of version {VERSION}")
    if (wrong := flaw(content, "record")) is not None:
        raise ValueError(wrong)
    try:
        content["trials"] = [Trial(**trial) for trial in content["trials"]]
        for which in ("default", "tuned"):
            content[which] = None if content[which] is None else Scored(**content[which])
        return Record(**content)
    except TypeError as error:  # unknown keys
        raise ValueError(" ".join(str(error).split())[:120]) from error


def read_records(folder: Path) -> list[Record]:
    """Read all cells below a folder, by column and entry; other files are skipped with a warning."""
    records = []
    for path in sorted(folder.glob("[!.]*/*.json")):
        try:
            record = read_record(path)
            if path_of(folder, record.entry, record.column) != path:
                raise ValueError(f"it is the cell of {record.entry} in {record.column}")
            records.append(record)
        except (OSError, ValueError) as error:
            warn(path, str(error))
    return records


def current(records: Iterable[Record], protocol: Protocol, entries: Sequence[Entry] | None = None) -> tuple[list[Record], list[Record]]:
    """Separate the cells of given entries (default: the protocol's) made under this protocol from the others."""
    columns = {column.key: column for column in protocol.columns}
    known = {entry.name: entry for entry in (protocol.entries if entries is None else entries)}
    mine: list[Record] = []
    others: list[Record] = []
    for record in records:
        entry, column = known.get(record.entry), columns.get(record.column)
        is_mine = entry is not None and column is not None and protocol.digest(entry, column) == record.protocol
        (mine if is_mine else others).append(record)
    return mine, others
