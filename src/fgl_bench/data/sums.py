"""Checksums of raw files, to detect datasets that differ from the known ones."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.raw import data_root, known, known_sums, one_line, present, shown
from fgl_bench.errors import UserError
from fgl_bench.utils.files import write_whole

LARGE = 1_000_000_000
"""Bytes above which a file's sum is remembered."""

MEMORY = "sums.json"
"""The file below ``cache_dir`` where sums of large files are remembered."""

_warned: set[Path] = set()


def fingerprint(dataset: Dataset, data_dir: str | None, cache_dir: str | Path | None) -> dict[str, str] | None:
    """The raw files of ``dataset`` that the package does not know, with their sums: part of what a run's result depends on.

    A file that is not the known one of its name is a ``warning:`` line on stderr, once per process. Files of which no sum is known
    (``custom``, for one) give none.

    Args:
        dataset: as instantiated from the configuration.
        data_dir: folder of raw files, see :meth:`Dataset.load`.
        cache_dir: folder where sums of files above 1 GB are remembered by path, size and time; None sums them up every time.

    Returns:
        SHA-256 by file, files named by their paths below the data root (``custom``: as configured). Empty where no file is read or
        all are known ones; None where a file is absent.

    Raises:
        UserError: a file cannot be read, or a key of the dataset does not name any.
    """
    files = dataset.files(data_root(data_dir))
    if not all(present(f"dataset={dataset.name}", path) for path in files.values()):
        return None
    unknown = {}
    for name, path in files.items():
        try:
            digest = sha256(path, cache_dir)
            sums = known_sums().get(name, [])
            if known(path, sums, digest):
                continue
        except OSError as error:
            reason = error.strerror or one_line(error)
            raise UserError(f"dataset={dataset.name}: {shown(path)} cannot be read ({reason})") from None
        unknown[name] = digest
        if sums and path not in _warned:
            _warned.add(path)
            usual = " or ".join(each[:12] if len(each) == 64 else f"git {each[:12]}" for each in sums)
            print(f"warning: {path} is not the file that is known: its sum is {digest[:12]}, not {usual}", file=sys.stderr)
    return unknown


def sha256(path: Path, cache_dir: str | Path | None) -> str:
    """SHA-256 of a file, in hex; that of a large file is remembered below ``cache_dir``."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size <= LARGE or cache_dir is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        memory, key = Path(os.path.expanduser(cache_dir)) / MEMORY, str(path.absolute())
        state = [status.st_size, status.st_mtime_ns]
        match _remembered(memory).get(key):
            case [size, time, str(digest)] if [size, time] == state:
                return digest
        print(f"{path}: its sum is computed once ({status.st_size / 1e9:.1f} GB)", file=sys.stderr)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _remember(memory, {**_remembered(memory), key: [*state, digest]})
    return digest


def _remembered(memory: Path) -> dict[str, Any]:
    try:
        content = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent or damaged: recompute the sum
        return {}
    return content if isinstance(content, dict) else {}


def _remember(memory: Path, content: dict[str, Any]) -> None:
    with suppress(OSError):  # a cache that cannot be written costs time, not correctness
        write_whole(memory, json.dumps(content, indent=1))
