"""A user's method in the leaderboard: a folder with its file, its settings and its cells."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.config.values import NAME, plain
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.board import Board, read_board
from fgl_bench.leaderboard.protocol import Entry, Protocol, names, shared_of, space_of
from fgl_bench.leaderboard.record import current, read_records
from fgl_bench.results.cells import warn
from fgl_bench.utils.files import write_whole

FILE = "entry.yaml"
KEYS = {"method", "class", "scenario", "model", "keys", "space"}
SCENARIOS = ("sync", "semi_async", "decentralized")
SUBMITTED = "submitted"  # below the folder of the leaderboard's cells
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
OF_ENTRY = re.compile(r"algorithm(\.[A-Za-z]\w*)+")  # keys of the method itself


@dataclass(frozen=True)
class Submission:
    """A submission folder.

    Attributes:
        folder: contains the method's file, ``entry.yaml`` and the cells.
        content: content of ``entry.yaml``: ``method`` (the file), ``class``, ``scenario``, ``model``, ``keys`` that are not tuned, and the
            ``space`` of those that are.
    """

    folder: Path
    content: Mapping[str, Any]

    @property
    def file(self) -> Path:
        return self.folder / str(self.content["method"])

    def entry(self, protocol: Protocol) -> Entry:
        """Return the entry, with shared and own choices.

        Raises:
            UserError: ``entry.yaml`` is wrong, or the method's file cannot be read.
        """
        where = self.folder / FILE
        name, scenario, model = (str(self.content[key]) for key in ("class", "scenario", "model"))
        module = self.file.stem
        if self.file.suffix != ".py" or self.file.parent != self.folder or not IDENTIFIER.fullmatch(module):
            raise UserError(f"{where}: method={self.content['method']}: must be a .py file in the same folder")
        if not IDENTIFIER.fullmatch(name):
            raise UserError(f"{where}: class={name[:60]}: must be the name of a class")
        if scenario not in SCENARIOS:
            raise UserError(f"{where}: scenario={scenario}: must be {', '.join(SCENARIOS)}")
        if not NAME.fullmatch(model):
            raise UserError(f"{where}: model={model}: must be a backbone")
        keys, space = self.content["keys"] or {}, space_of(self.content["space"] or {}, str(where))
        tuned = [part for key in space for part in names(key)]
        for key in map(str, (*keys, *tuned)):
            if not OF_ENTRY.fullmatch(key):
                raise UserError(f"{where}: {key}: only algorithm.KEY is the method's own; all else is the same for all")
        for key in tuned:
            if key in keys:
                raise UserError(f"{where}: {key}: is tuned, so it has no value of its own; its default is the first choice")
        try:
            source = self.file.read_bytes()
        except OSError as error:
            raise UserError(f"{self.file}: cannot be read ({error.strerror})") from error
        chosen = ["algorithm=fedavg", f"algorithm._target_={module}.{name}", f"scenario={scenario}", *protocol.scenario_keys(scenario)]
        return Entry(
            name=title(name, model, protocol),
            algorithm=f"{module}.{name}",
            model=model,
            shared=shared_of(protocol, model),
            own=space,
            overrides=(*chosen, *(f"++{key}={plain(value)}" for key, value in keys.items())),
            sums=(hashlib.sha256(source).hexdigest(),),
        )

    def write(self, source: str) -> None:
        """Write the folder with the current method file; existing cells stay."""
        write_whole(self.file, source)
        write_whole(self.folder / FILE, yaml.safe_dump(dict(self.content), sort_keys=False))


def title(name: str, model: str, protocol: Protocol) -> str:
    """Return the entry's name: the class in lower case, with its backbone unless the protocol's, distinct from the protocol's entries."""
    lower = name.lower() if model == protocol.backbone else f"{name.lower()}-{model}"
    return f"{lower}-own" if any(lower == entry.name for entry in protocol.entries) else lower


def read_submission(folder: Path) -> Submission:
    """Read the submission in a folder.

    Raises:
        UserError: the folder has no valid submission.
    """
    path = folder / FILE
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{folder}: has no {FILE}; fgl-bench place my_method.py leaderboard makes such a folder") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())[:100]})") from error
    if not isinstance(content, dict) or set(content) != KEYS or not isinstance(content["keys"] or {}, dict):
        raise UserError(f"{path}: must have the keys {', '.join(sorted(KEYS))}")
    return Submission(folder, content)


def with_guests(board: Board, folders: Sequence[Path]) -> Board:
    """Add the cells of submissions to a board, except cells of another protocol or method file."""
    for folder in folders:
        try:
            entry = read_submission(folder).entry(board.protocol)
        except UserError as error:
            warn(folder, str(error))
            continue
        mine, others = current(read_records(folder), board.protocol, [entry])
        board = Board(board.protocol, [*board.records, *mine], [*board.others, *others], (*board.guests, entry))
    return board


def whole_board(folder: Path, protocol: Protocol) -> Board:
    """Read the cells in a folder, including submissions (``submitted/<name>/``)."""
    return with_guests(read_board(folder, protocol), sorted(path.parent for path in folder.glob(f"{SUBMITTED}/*/{FILE}")))
