"""Runs as child processes: their arguments, and their end with the process that began them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable


def quoted(value: object) -> str:
    """A value for Hydra's grammar: paths may hold any sign."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'" if isinstance(value, str) else str(value)


def end_with(parent: int) -> Callable[[], None]:
    """What a child calls before it begins, so that Linux ends it when this process dies, however that comes about."""
    library = ctypes.CDLL(None)

    def prepare() -> None:
        library.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # died in between
            os._exit(1)

    return prepare
