"""Progress messages for slow operations."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

PATIENCE = 2.0
"""Seconds that nobody minds."""


@contextmanager
def announce_if_slow(what: str) -> Iterator[None]:
    """Print on stderr the current operation once it takes longer than :data:`PATIENCE`, and its duration at the end."""

    def say() -> None:
        print(f"{what} ...", file=sys.stderr, flush=True)

    begin, timer = time.monotonic(), threading.Timer(PATIENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        seconds = time.monotonic() - begin
        if seconds > PATIENCE:
            print(f"{what}: {seconds:.0f} s", file=sys.stderr, flush=True)


@cache
def say_once(note: str) -> None:
    """Print a line on stderr, once per process."""
    print(note, file=sys.stderr, flush=True)
