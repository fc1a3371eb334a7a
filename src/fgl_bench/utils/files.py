"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

_reading = threading.Lock()


def write_whole(path: Path, text: str) -> None:
    """:func:`write_bytes` of a text."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file to a temporary sibling and rename it, so that it is never seen half-written; its folder is made.

    Its permissions are those of any new file of this process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(scratch, 0o666 & ~umask())
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def umask() -> int:
    """The permissions that new files of this process lack."""
    with _reading:
        mask = os.umask(0o077)  # the only way to read it is to set it
        os.umask(mask)
    return mask
