"""The checkpoints of unfinished runs, in a hidden folder beside the run's own: ``.<hash>.checkpoint/seeds-0-1/<rounds or trips done>/``.

Workers that share the clients of a seed have a folder each between the last two, ``worker-0-of-2/``. Each checkpoint holds
``checkpoint.json`` (of which run and code it is, and sums of the other files), ``state.json`` and ``tensors.safetensors``.
No code is stored, and none is executed when a checkpoint is read.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fgl_bench.results.provenance import versions
from fgl_bench.results.shapes import flaw, refused

VERSION = 1
KEPT = 2  # the newest, and the one before, in case the newest is damaged
PART = "part-"  # prefix of one that is being written
STATE, TENSORS, ABOUT = "state.json", "tensors.safetensors", "checkpoint.json"


class Unusable(Exception):
    """A checkpoint cannot be used, and why."""


def place(folder: Path) -> Path:
    """Where the checkpoints of the run ``folder`` are."""
    return folder.parent / f".{folder.name}.checkpoint"


def program(folder: Path, seeds: Sequence[int]) -> Path:
    """Where those of the program that trains ``seeds`` are; many seeds are told by a hash."""
    named = "-".join(map(str, seeds))
    return place(folder) / f"seeds-{named if len(named) < 100 else hashlib.sha256(named.encode()).hexdigest()[:16]}"


def of_worker(folder: Path, rank: int, size: int) -> Path:
    """Where in a program's folder worker ``rank`` of ``size`` that share its clients has its part; a single worker has no other place."""
    return folder if size == 1 else folder / f"worker-{rank}-of-{size}"


def sizes(folder: Path) -> list[int]:
    """By how many workers each the checkpoints of a program were made."""
    teams = {int(path.name.rpartition("-")[2]) for path in folder.glob("worker-*-of-[1-9]*") if found(path)}
    return sorted(teams | ({1} if found(folder) else set()))


def discard(folder: Path) -> None:
    """Remove the checkpoints of the run ``folder``."""
    shutil.rmtree(place(folder), ignore_errors=True)


@functools.cache
def code() -> dict[str, str]:
    """What decides the numbers besides the configuration: the package's source and the versions of others."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return {**versions(), "source": digest.hexdigest()}


def write(folder: Path, about: Mapping[str, Any], state: Mapping[str, Any], blocks: Mapping[str, np.ndarray]) -> int:
    """A checkpoint of a program, whole or not at all. Returns its bytes.

    Args:
        folder: the program's.
        about: what is known of it, with the rounds or trips ``done``.

    Raises:
        OSError: it cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=PART, dir=folder))
    try:
        (path / STATE).write_text(json.dumps(state), encoding="utf-8")
        save_file(dict(blocks), path / TENSORS)
        sums = {name: _sum(path / name) for name in (STATE, TENSORS)}
        (path / ABOUT).write_text(json.dumps({"version": VERSION, "code": code(), **about, "sums": sums}), encoding="utf-8")
        size = sum(file.stat().st_size for file in path.iterdir())
        final = folder / f"{about['done']:012d}"
        shutil.rmtree(final, ignore_errors=True)
        os.replace(path, final)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return size


def remove(folder: Path, done: int) -> None:
    """Remove the checkpoint of a program after so many rounds or trips."""
    shutil.rmtree(folder / f"{done:012d}", ignore_errors=True)


def thin(folder: Path, done: int) -> None:
    """Keep a program's checkpoint after ``done`` and one more: the last before it, else a later one, which could not be resumed."""
    for old in sorted(found(folder), key=lambda path: int(path.name) > done)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def found(folder: Path) -> list[Path]:
    """The checkpoints of a program, the one after most rounds or trips first."""
    return sorted((path for path in folder.glob("[0-9]*") if path.name.isdecimal() and path.is_dir()), key=lambda path: -int(path.name))


def clear(folder: Path) -> None:
    """Remove what a killed process has left of a checkpoint that it was writing."""
    for part in folder.glob(f"{PART}*"):
        shutil.rmtree(part, ignore_errors=True)


def about(path: Path, identity: str, models: str) -> dict[str, Any]:
    """What is known of a checkpoint of the run ``identity`` that keeps these models.

    Raises:
        Unusable: it is damaged, or another run's or other code's.
    """
    try:
        known = json.loads((path / ABOUT).read_text(encoding="utf-8"), parse_constant=refused)
        if known["version"] != VERSION or known["code"] != code():
            raise Unusable("it was made by another version of the code")
        if known["identity"] != identity:
            raise Unusable("it belongs to another run")
        if known["models"] != models:
            raise Unusable(f"it was made with other models to keep ({known['models']})")
        wrong = flaw(known, "checkpoint")
        if wrong is not None or known["done"] != int(path.name):
            raise Unusable(f"it is damaged ({wrong or 'its seeds or steps are wrong'})")
        if any(_sum(path / name) != known["sums"][name] for name in (STATE, TENSORS)):
            raise Unusable("it is damaged")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unusable("it is damaged") from error
    return known


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The state and the blocks of memory of a checkpoint; raises Unusable."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return json.loads((path / STATE).read_text(encoding="utf-8")), load_file(path / TENSORS)
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise Unusable("it is damaged") from error


def _sum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while part := file.read(1 << 22):
            total = zlib.crc32(part, total)
    return total
