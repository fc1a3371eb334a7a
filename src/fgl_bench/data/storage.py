"""Arrays in memory or in memory-mapped files, made by the same code.

A file is written under a temporary name and renamed when it is complete, so that whatever is interrupted goes on with the files
that are finished. A folder's name carries a hash of all that decides its content.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fgl_bench.errors import UserError
from fgl_bench.utils.scratch import lock

FORMAT = 1
"""Part of every folder's name; raised when what the files hold changes."""

BLOCK_BYTES = 1 << 26
"""What is read or written at a time."""

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
    """One ``.npy`` file an array in ``folder``, mapped read-only."""

    def __init__(self, folder: Path):
        self.folder = folder

    def array(self, name: str, shape: Sequence[int], dtype: Any, fill: Fill) -> np.ndarray:
        path, part = self.folder / f"{name}.npy", self.folder / f"{name}.{os.getpid()}.part"
        with _writing:
            try:
                if not path.is_file():
                    self.folder.mkdir(parents=True, exist_ok=True)
                    self._remove_leftovers(name)
                    with self._held(part):
                        self._write(part, tuple(shape), np.dtype(dtype), fill)
                        os.replace(part, path)
                return np.load(path, mmap_mode="r", allow_pickle=False)
            except OSError as error:
                raise UserError(f"cache_dir: {path} cannot be written or read ({error.strerror or error})") from error
            finally:
                with suppress(OSError):
                    part.unlink()

    def _remove_leftovers(self, name: str) -> None:
        """What processes that were killed had written of this array."""
        for part in self.folder.glob(f"{escape(name)}.[0-9]*.part"):
            handle = lock(part)
            if handle is not None:
                part.unlink(missing_ok=True)
                os.close(handle)

    @contextmanager
    def _held(self, part: Path) -> Iterator[None]:
        """Shows other processes that this one is alive and writes the file."""
        part.touch()
        handle = lock(part)
        try:
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def _write(self, part: Path, shape: tuple[int, ...], dtype: np.dtype, fill: Fill) -> None:
        out = np.lib.format.open_memmap(part, "w+", dtype, shape)  # zeros
        if hasattr(os, "posix_fallocate") and out.nbytes:
            # A hole that the disk cannot fill would end the process at the first write to it.
            with part.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
        fill(out)
        out.flush()


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
    """Hash ``array`` as so many little-endian values, a block at a time."""
    flat = array.reshape(-1)
    for part in blocks(flat.size, flat.itemsize):
        content.update(np.ascontiguousarray(flat[part]).astype(dtype, copy=False).tobytes())


def name_of(*parts: Any) -> str:
    """Sixteen hex digits of whatever decides a folder's content."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
