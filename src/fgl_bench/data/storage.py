"""Arrays in memory or in memory-mapped files, made by the same code.

A file is written under a temporary name and renamed when it is complete, so that an interrupted job resumes with the finished
files. A folder's name contains a hash of everything that determines its content.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fgl_bench.errors import UserError
from fgl_bench.utils.files import leftovers, scratch
from fgl_bench.utils.patience import announce_if_slow

FORMAT = 1
"""Part of every folder's name; raised when what the files hold changes."""

BLOCK_BYTES = 1 << 26
"""Bytes read or written at a time."""

CHECKED_BYTES = 1 << 22
"""Bytes that are read at a time to verify a checksum; they fit into a cache."""

SEAL_BYTES = 8
"""The checksum at a file's end, in hexadecimal digits."""

_verified: dict[Path, tuple[int, ...]] = {}  # the files that this process has verified, by what they were like then

# Seeds that are trained side by side, in threads, may want the same file at the same time.
_writing = threading.RLock()

Fill = Callable[[np.ndarray], None]


class Storage(Protocol):
    """Where arrays are made."""

    def array(self, name: str, shape: Sequence[int], dtype: Any, fill: Fill) -> np.ndarray:
        """The array called ``name``: made by ``fill``, which writes all that is not 0 to the zeros it is given, unless it is there."""
        ...


class Memory:
    """Ordinary arrays."""

    def array(self, name: str, shape: Sequence[int], dtype: Any, fill: Fill) -> np.ndarray:
        out = np.zeros(tuple(shape), dtype)
        fill(out)
        return out


class Disk:
    """One ``.npy`` file an array in ``folder``, mapped read-only.

    A checksum follows the array in its file. It covers the content and the path from the graph's folder on, and is verified when a process
    first opens the file. A damaged file, or one of another graph, is written again.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def array(self, name: str, shape: Sequence[int], dtype: Any, fill: Fill) -> np.ndarray:
        shape, dtype, path = tuple(shape), np.dtype(dtype), self._path(name)
        with _writing, self._reported(path):
            stored = self._sound(path)
            if stored is not None and stored.shape == shape and stored.dtype == dtype:
                return stored
            self.folder.mkdir(parents=True, exist_ok=True)
            with leftovers(f".{name}-", self.folder) as folders:
                for folder in folders:
                    shutil.rmtree(folder, ignore_errors=True)
            with scratch(f".{name}-", self.folder) as folder:
                part = folder / path.name
                self._write(part, shape, dtype, fill)
                with part.open("ab") as file:
                    file.write(b"%08x" % checksum(part, path))
                os.replace(part, path)
            _verified[path] = version_of(path)
            return np.load(path, mmap_mode="r", allow_pickle=False)

    def find(self, name: str) -> np.ndarray | None:
        """The array called ``name`` if it is there and sound."""
        path = self._path(name)
        with _writing, self._reported(path):
            return self._sound(path)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _sound(self, path: Path) -> np.ndarray | None:
        if not path.is_file():
            return None
        version = version_of(path)
        if _verified.get(path) != version:
            with announce_if_slow(f"verifying the checksum of {path}"):
                size = path.stat().st_size - SEAL_BYTES
                with path.open("rb") as file:
                    file.seek(max(size, 0))
                    sound = file.read() == b"%08x" % checksum(path, path, size)
            if not sound:
                print(f"note: {path} is damaged, or was not written for this graph; it is written again", file=sys.stderr)
                path.unlink()
                return None
            _verified[path] = version
        return np.load(path, mmap_mode="r", allow_pickle=False)

    @contextmanager
    def _reported(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"cache_dir: {path} cannot be written or read ({error.strerror or error})") from error

    def _write(self, part: Path, shape: tuple[int, ...], dtype: np.dtype, fill: Fill) -> None:
        out = np.lib.format.open_memmap(part, "w+", dtype, shape)  # zeros
        if hasattr(os, "posix_fallocate") and out.nbytes:
            # A hole that the disk cannot fill would end the process at the first write to it.
            with part.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
        fill(out)
        out.flush()


def checksum(path: Path, named_as: Path, size: int | None = None) -> int:
    """crc32 of a file's first ``size`` bytes (None: all), and of the path that it has, or will have, below its graph's folder."""
    first = next((i for i, name in enumerate(named_as.parts) if name.startswith("graph_")), -2)
    crc = zlib.crc32("/".join(named_as.parts[first:]).encode())
    left = path.stat().st_size if size is None else size
    block = memoryview(bytearray(max(min(left, CHECKED_BYTES), 0)))
    with path.open("rb", buffering=0) as file:
        while left > 0 and (count := file.readinto(block[: min(left, len(block))])):
            crc = zlib.crc32(block[:count], crc)
            left -= count
    return crc


def version_of(path: Path) -> tuple[int, ...]:
    """A key that changes with a file's content."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def folder_of(*arrays: Any) -> Path | None:
    """The folder that all of ``arrays``, except empty ones, are mapped from; None where one of them is an array of its own."""
    mapped: list[Any] = [isinstance(array, np.memmap) and array.filename for array in arrays if getattr(array, "size", 1)]
    return Path(mapped[0]).parent if mapped and all(mapped) else None


def release(array: Any) -> None:
    """Drop the pages of a mapped array from this process's memory; what was written stays in the file. Elsewhere: nothing."""
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


def blocks(rows: int, row_bytes: int) -> Iterator[slice]:
    """Slices of about :data:`BLOCK_BYTES` that cover ``rows`` rows."""
    step = max(1, BLOCK_BYTES // max(row_bytes, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def update(content: hashlib._Hash, array: np.ndarray, dtype: str) -> None:
    """Hash the values of ``array`` as little-endian numbers, one block at a time."""
    flat = array.reshape(-1)
    for part in blocks(flat.size, flat.itemsize):
        content.update(np.ascontiguousarray(flat[part]).astype(dtype, copy=False).tobytes())


def name_of(*parts: Any) -> str:
    """Folder name: sixteen hex digits of a hash of everything that determines the folder's content."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
