"""Settings of the C library's allocator for large arrays. They have an effect with glibc only."""

from __future__ import annotations

import ctypes
from contextlib import suppress

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h


def keep_freed_memory() -> None:
    """Keep freed memory in the process.

    By default every large gradient is returned to the system and the same pages are faulted in again at the next step, which costs a
    quarter of a step at Physics' size.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(MMAP_MAX, 0)


def return_freed_memory() -> None:
    """Return the memory that :func:`keep_freed_memory` kept to the system.

    Every thread has its own, so that later programs in other threads cannot reuse the memory of finished ones.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
