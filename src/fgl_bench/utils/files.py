"""Atomic writes: a file is complete or absent."""

from __future__ import annotations

import errno
import os
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
