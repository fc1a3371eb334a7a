"""The lock of a study's journal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fgl_bench.errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Held while the journal is written. It goes with its process; Optuna's own is a file that a killed process leaves, for all to wait."""

    def __init__(self, journal: Path):
        self.journal, self.handle = journal, -1

    def acquire(self) -> bool:
        """Wait for the lock; a line that a killed process has left unfinished is taken away, or nothing after it could be read."""
        self.handle = os.open(self.journal, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        size = os.fstat(self.handle).st_size
        tail = os.pread(self.handle, size, 0) if size and os.pread(self.handle, 1, size - 1) != b"\n" else b""
        if tail:
            os.ftruncate(self.handle, tail.rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        os.close(self.handle)


@contextmanager
def reading(journal: Path) -> Iterator[None]:
    """Turn whatever Optuna raises on a damaged journal into one line.

    Raises:
        UserError: the journal is damaged.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, RecursionError) as error:
        line = damaged_line(journal)
        where = f"line {line} of {journal}" if line else str(journal)
        raise UserError(f"{where} is damaged; remove the file to search again: complete runs are not repeated") from error


def damaged_line(journal: Path) -> int | None:
    """The first line that is no record; None if all are."""
    for number, line in enumerate(journal.read_bytes().splitlines(), 1):
        try:
            if isinstance(json.loads(line), dict):
                continue
        except (ValueError, RecursionError):
            pass
        return number
    return None


def lock_of(journal: Path) -> Lock | None:
    """None, for Optuna's own, where the system has no such locks."""
    return None if fcntl is None else Lock(journal)
