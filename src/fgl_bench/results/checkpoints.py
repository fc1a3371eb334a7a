"""The checkpoints of unfinished runs, in a hidden folder next to the run's own: ``.<hash>.checkpoint/seeds-0-1/<rounds or trips done>/``.

Workers that share the clients of a seed have a folder each between the last two, ``worker-0-of-2/``. Each checkpoint holds
``checkpoint.json`` (its run, code and progress) and ``state.pt``, which ``torch.load`` reads with an allow-list of classes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fgl_bench.results.provenance import versions
from fgl_bench.results.shapes import flaw, refused

KEPT = 2  # the newest, and the one before: the newest may be damaged, or lack the part of a killed worker
PART = "part-"  # prefix of one that is being written
STATE, ABOUT = "state.pt", "checkpoint.json"


class Unusable(Exception):
    """A checkpoint cannot be used, and why."""


def checkpoint_folder(folder: Path) -> Path:
    """Where the checkpoints of the run ``folder`` are."""
    return folder.parent / f".{folder.name}.checkpoint"


def program(folder: Path, seeds: Sequence[int]) -> Path:
    """Where those of the program that trains ``seeds`` are; many seeds are told by a hash."""
    named = "-".join(map(str, seeds))
    return checkpoint_folder(folder) / f"seeds-{named if len(named) < 100 else hashlib.sha256(named.encode()).hexdigest()[:16]}"


def of_worker(folder: Path, rank: int, size: int) -> Path:
    """The folder of worker ``rank`` of the ``size`` that share a program's clients; a single worker uses the program's own."""
    return folder if size == 1 else folder / f"worker-{rank}-of-{size}"


def team_sizes(folder: Path) -> list[int]:
    """The numbers of workers that have written checkpoints of a program."""
    teams = {int(path.name.rpartition("-")[2]) for path in folder.glob("worker-*-of-[1-9]*") if checkpoints(path)}
    return sorted(teams | ({1} if checkpoints(folder) else set()))


def discard(folder: Path) -> None:
    """Remove the checkpoints of the run ``folder``."""
    shutil.rmtree(checkpoint_folder(folder), ignore_errors=True)


@functools.cache
def code() -> dict[str, str]:
    """Return what determines a run's numbers apart from its configuration: a digest of the package's source, and library versions."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return {**versions(), "source": digest.hexdigest()}


def write(folder: Path, about: Mapping[str, Any], save: Callable[[Path], None]) -> None:
    """Write a checkpoint of a program, whole or not at all.

    Args:
        folder: the program's.
        about: its run and progress; the rounds or trips ``done`` name it.
        save: writes the state to a path.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=PART, dir=folder))
    try:
        save(path / STATE)
        (path / ABOUT).write_text(json.dumps({"code": code(), **about}), encoding="utf-8")
        final = folder / f"{about['done']:012d}"
        shutil.rmtree(final, ignore_errors=True)
        os.replace(path, final)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def remove(folder: Path, done: int) -> None:
    """Remove the checkpoint of a program after ``done`` rounds or trips."""
    shutil.rmtree(folder / f"{done:012d}", ignore_errors=True)


def thin(folder: Path, done: int) -> None:
    """Keep a program's checkpoint after ``done`` and one more: the last before it, else a later one, which could not be resumed."""
    for old in sorted(checkpoints(folder), key=lambda path: int(path.name) > done)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a program, the one after most rounds or trips first."""
    return sorted((path for path in folder.glob("[0-9]*") if path.name.isdecimal() and path.is_dir()), key=lambda path: -int(path.name))


def clear(folder: Path) -> None:
    """Remove what a killed process has left of a checkpoint that it was writing."""
    for part in folder.glob(f"{PART}*"):
        shutil.rmtree(part, ignore_errors=True)


def about(path: Path, identity: str) -> dict[str, Any]:
    """The description of a checkpoint of the run ``identity``.

    Raises:
        Unusable: it is damaged, or another run's or other code's.
    """
    try:
        known = json.loads((path / ABOUT).read_text(encoding="utf-8"), parse_constant=refused)
        if known["code"] != code():
            raise Unusable("it was made by another version of the code")
        if known["identity"] != identity:
            raise Unusable("it belongs to another run")
        wrong = flaw(known, "checkpoint")
        if wrong is not None or known["done"] != int(path.name):
            raise Unusable(f"it is damaged ({wrong or 'its steps are wrong'})")
        with zipfile.ZipFile(path / STATE) as state:
            if state.testzip() is not None:
                raise Unusable("it is damaged")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile) as error:
        raise Unusable("it is damaged") from error
    return known
