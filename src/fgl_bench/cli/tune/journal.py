"""The lock of a study's journal."""

from __future__ import annotations

import os
from pathlib import Path

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


def lock_of(journal: Path) -> Lock | None:
    """None, for Optuna's own, where the system has no such locks."""
    return None if fcntl is None else Lock(journal)
