"""Settings of the C library's allocator for large arrays. They have an effect with glibc only."""

from __future__ import annotations

import ctypes
import os
import sys

# Arrays are aligned to 64 bytes. Before 2.38 glibc puts what it cuts off in front of them into a thread's cache of small blocks, where it
# never joins the array again that was freed behind it: the next one of the same size does not fit the hole. Without that
# cache a run takes a tenth to almost a half less memory and is no slower (docs/memory.md).
MENDED = (2, 38)
TUNABLE = "glibc.malloc.tcache_count=0"


def glibc() -> tuple[int, ...] | None:
    """Version of the C library, None where it is another."""
    try:
        name, _, number = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(int(part) for part in number.split(".")) if name == "glibc" else None
    except (AttributeError, OSError, ValueError):
        return None


def environment() -> dict[str, str]:
    """This process's environment for a child that trains. The user's own setting of the cache of small blocks is preserved."""
    told = os.environ.get("GLIBC_TUNABLES", "")
    if "tcache_count" in told or (glibc() or MENDED) >= MENDED:
        return dict(os.environ)
    return {**os.environ, "GLIBC_TUNABLES": f"{told}:{TUNABLE}" if told else TUNABLE}


def restart() -> None:
    """Restart this process in :func:`environment`, which glibc reads once; continue if it is set already or cannot be set."""
    wanted = environment()
    if wanted == dict(os.environ) or not sys.executable:
        return
    try:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted)
    except OSError:
        return


def keep_freed_memory() -> None:
    """Keep freed memory in the process.

    By default every large gradient is returned to the system and the same pages are faulted in again at the next step, which costs a
    quarter of a step at Physics' size.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(mmap_max, 0)


def return_freed_memory() -> None:
    """Return the memory that :func:`keep_freed_memory` kept to the system.

    Every thread has its own, so that later programs in other threads cannot reuse the memory of finished ones.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return
