"""Temporary folders for files that are being written. They are removed at the end; those of killed processes are recognized.

A process holds a lock on its folder as long as it lives. A folder without a lock is left over. On a file system without such
locks no folder counts as left over.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def scratch(prefix: str, folder: Path) -> Iterator[Path]:
    """A new folder ``<prefix>*`` in ``folder``, locked by this process and removed at the end unless it was renamed.

    Raises:
        OSError: it cannot be made.
    """
    path, handle = _locked(prefix, folder)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _locked(prefix: str, folder: Path) -> tuple[Path, int | None]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        handle = lock(path)
        if handle is None or path.exists():  # another process may have taken it for a leftover before it was locked
            return path, handle
        os.close(handle)


def lock(path: Path) -> int | None:
    """Lock a folder or a file; None if that fails, or if another process holds the lock."""
    if fcntl is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


@contextmanager
def leftovers(prefix: str, folder: Path) -> Iterator[list[Path]]:
    """This user's folders ``<prefix>*`` in ``folder`` whose processes are gone, held as long as the context lasts."""
    handles: dict[Path, int] = {}
    try:
        for path in sorted(folder.glob(f"{prefix}*")):
            if _own(path) and (handle := lock(path)) is not None:
                handles[path] = handle
        yield list(handles)
    finally:
        for handle in handles.values():
            os.close(handle)


def remove_leftovers(prefix: str, folder: Path) -> None:
    """Remove :func:`leftovers`."""
    with leftovers(prefix, folder) as found:
        for path in found:
            shutil.rmtree(path, ignore_errors=True)


def _own(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.is_dir() and path.stat().st_uid == os.getuid()
    except OSError:
        return False
