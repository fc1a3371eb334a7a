"""Files that are complete or absent: atomic writes, and temporary folders.

A process holds a lock on its temporary folder as long as it lives. A folder without a lock is left over. On a file system without such
locks no folder counts as left over.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fgl_bench.errors import UserError

_reading = threading.Lock()


def write_whole(path: Path, text: str) -> None:
    """:func:`write_bytes` of a text."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one piece (:func:`replacing`); its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        part.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file next to ``path``, of a name that nobody can guess; renamed to ``path`` at the end unless an error was raised.

    Its permissions are those of any new file of this process. A link at ``path`` is replaced, so that nobody who shares the folder
    redirects the write.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~umask())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_out(path: Path, data: bytes) -> None:
    """Write the file that a user has named: links are followed, devices and pipes are written to, read-only files are refused.

    Raises:
        OSError: it cannot be written.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # or a link to nowhere
        write_bytes(Path(os.path.realpath(path)), data)
        return
    if stat.S_ISREG(mode):
        if not (mode & 0o222 and os.access(path, os.W_OK)):  # root may write everything
            raise OSError(errno.EACCES, "the file is read-only")
        write_bytes(Path(os.path.realpath(path)), data)
    else:
        with path.open("wb", buffering=0) as file:
            file.write(data)


def home(key: str, text: str | Path) -> Path:
    """The path with ``~`` expanded; raises UserError where there is no such home directory."""
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise UserError(f"{key}={text}: there is no such home directory; a name that begins with ~ is written ./~NAME")
    return Path(path)


def umask() -> int:
    """The permissions that new files of this process lack."""
    with _reading:
        mask = os.umask(0o077)  # the only way to read it is to set it
        os.umask(mask)
    return mask


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
    with leftovers(prefix, folder) as paths:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)


def _own(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.is_dir() and path.stat().st_uid == os.getuid()
    except OSError:
        return False
