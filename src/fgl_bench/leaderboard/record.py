"""A cell of the leaderboard as a small text file: validation scores of its trials, and test scores of its two winners."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol
from fgl_bench.results.cells import warn
from fgl_bench.results.shapes import flaw, refused
from fgl_bench.utils.files import write_whole

VERSION = 1
NUMBERS = re.compile(r"\[(\n[-+.\deE,\snul]*)\]")  # a list of numbers in JSON


@dataclass(frozen=True)
class Trial:
    """A configuration and its validation scores. It has no test score, since winners are chosen among trials.

    Attributes:
        values: by key, including defaults.
        validation: mean over the tuning seeds by model, ``received`` and ``trained``; None if a seed diverged.
        problem: reason for missing scores; empty if there are scores.
    """

    number: int
    values: Mapping[str, Any]
    validation: Mapping[str, float | None]
    seconds: float
    problem: str = ""


@dataclass(frozen=True)
class Winner:
    """The best trial for one kind of model, run once with the test seeds.

    Attributes:
        trial: number of the trial.
        scores: test scores by seed; None if the seed diverged.
        fairness: test scores over the clients: worst, lowest tenth, median, best, standard deviation.
        bytes: bytes up and down per seed.
    """

    trial: int
    scores: list[float | None]
    fairness: Mapping[str, float | None]
    bytes: Mapping[str, int]
    trips: int
    seconds: float
    config_hash: str
    command: str
    finished: str


@dataclass
class Record:
    """A cell: an entry in a column.

    Attributes:
        protocol: digest of the protocol and entry.
        planned: total number of trials.
        facts: metric, scenario, clients, versions, device and code of the latest run.
        properties: properties of the federation.
    """

    protocol: str
    entry: str
    algorithm: str
    model: str
    dataset: str
    split: str
    planned: int
    trials: list[Trial] = field(default_factory=list)
    winners: dict[str, Winner] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, float] = field(default_factory=dict)

    @classmethod
    def new(cls, protocol: Protocol, entry: Entry, column: BoardColumn) -> Record:
        names = (entry.name, entry.algorithm, entry.model, column.dataset, column.split)
        return cls(protocol.digest(entry), *names, len(protocol.trials_of(entry, column)))

    @property
    def column(self) -> BoardColumn:
        return BoardColumn(self.dataset, self.split)

    @property
    def complete(self) -> bool:
        """Return True if all trials are done and the winners are scored."""
        return len(self.trials) == self.planned and all(model in self.winners or self.best(model) is None for model in MODELS)

    def best(self, model: str) -> Trial | None:
        """Return the trial with the highest validation score of this kind of model, the earliest of ties; None without scores."""
        scored = [trial for trial in self.trials if trial.validation.get(model) is not None]
        return max(scored, key=lambda trial: (trial.validation[model], -trial.number), default=None)

    def gain(self, model: str) -> float | None:
        """Return the validation gain of the best trial over the defaults."""
        best, default = self.best(model), next((trial for trial in self.trials if trial.number == 0), None)
        before = None if default is None else default.validation.get(model)
        return None if best is None or before is None else float(best.validation[model] or 0) - before


def path_of(folder: Path, entry: str, column: BoardColumn) -> Path:
    """``<folder>/<dataset>-<split>/<entry>.json``."""
    return folder / column.key / f"{entry}.json"


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
        content["winners"] = {model: Winner(**winner) for model, winner in content["winners"].items()}
        return Record(**content)
    except TypeError as error:  # unknown keys
        raise ValueError(" ".join(str(error).split())[:120]) from error


def read_records(folder: Path) -> list[Record]:
    """Read all cells below a folder, by column and entry; other files are skipped with a warning."""
    records = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            record = read_record(path)
            if path_of(folder, record.entry, record.column) != path:
                raise ValueError(f"it is the cell of {record.entry} in {record.column.key}")
            records.append(record)
        except (OSError, ValueError) as error:
            warn(path, str(error))
    return records


def current(records: Iterable[Record], protocol: Protocol, entries: Sequence[Entry] | None = None) -> tuple[list[Record], list[Record]]:
    """Separate the cells of given entries (default: the protocol's) made under this protocol from the others."""
    digests = {entry.name: protocol.digest(entry) for entry in (protocol.entries if entries is None else entries)}
    mine: list[Record] = []
    others: list[Record] = []
    for record in records:
        (mine if digests.get(record.entry) == record.protocol else others).append(record)
    return mine, others
