"""Runs as child processes: their arguments, their end with the parent process, and the end of this process by a signal."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

JOB = "FGL_BENCH_JOB"
"""Variable with the number of this job among those that a launcher runs at the same time; the command line sets it."""


def quoted(value: object) -> str:
    """A value for Hydra's grammar: paths may hold any sign. Backslashes are escaped only before a quote, as the grammar wants it."""
    if not isinstance(value, str):
        return str(value)
    return "'" + re.sub(r"(\\*)('|$)", lambda match: 2 * match[1] + ("\\'" if match[2] else ""), value) + "'"


def end_with(parent: int) -> Callable[[], None]:
    """A function that a child calls at its start, so that Linux ends it when this process dies for any reason."""
    library = ctypes.CDLL(None)

    def prepare() -> None:
        library.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # died in between
            os._exit(1)

    return prepare


def watched(name: str) -> None:
    """Continue in a child and wait for its end: this process ends with the child's status, and reports a signal that killed the child.

    A killed process cannot report it, and a launcher knows only the signal's number. A signal that ends this process goes to the child.
    """
    child, passed = 0, []

    def pass_on(number: int, frame: FrameType | None) -> None:
        passed.append(number)
        os.kill(child, number)

    prepare = end_with(os.getpid()) if sys.platform == "linux" else None
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # until it is known to whom a signal goes
    before = {number: signal.signal(number, pass_on) for number in numbers}
    child = os.fork()
    if not child:
        for number, handler in before.items():
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if not child:
        if prepare is not None:
            prepare()
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the child too
    # A signal just before a waitpid() that blocks would be passed on after the child's end.
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        time.sleep(0.1)
    code = os.waitstatus_to_exitcode(ended[1])
    if code < 0 and -code not in passed:
        print(f"fgl-bench: error: {name} was killed by signal {-code} ({signal.Signals(-code).name})", file=sys.stderr, flush=True)
    os._exit(code if code >= 0 else 128 - code)


class Stopped(KeyboardInterrupt):
    """The process was told to end (SIGTERM, SIGHUP, SIGUSR1, or Ctrl-C); it removes what it has begun.

    Attributes:
        kept: description of the saved part of an unfinished run.
    """

    saved = ""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status by a shell's convention."""
        return 128 + self.number

    def __str__(self) -> str:
        return "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"


def import_torch() -> None:
    """Import torch with signals held back until it is there: an exception in the midst of its initialization ends the process.

    It makes half a million objects that stay: they are not searched for garbage, meanwhile or later, which saves 0.3 s.
    """
    if "torch" in sys.modules:  # in a user's program
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_raised: list[Stopped] = []  # inside of stoppable()


def raise_again() -> None:
    """Raise a signal's exception again if code inside :func:`stoppable` caught it, such as a library that composes or loads."""
    if _raised:
        raise _raised[0]


@contextmanager
def stoppable() -> Iterator[list[Stopped]]:
    """SIGTERM, SIGHUP and SIGUSR1 raise :class:`Stopped`, once, and Ctrl-C every time; the first is in the list even if it was caught."""
    _raised.clear()
    raised, owner = _raised, os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and (raised or os.getpid() != owner):
            raise KeyboardInterrupt
        if os.getpid() != owner:  # a fork of this process that has not set its own
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not raised:
            raised.append(Stopped(number))
            raise raised[0]

    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield raised
        return
    numbers = [number for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if (number := getattr(signal, name, None)) is not None]
    usual = (signal.SIG_DFL, signal.default_int_handler)  # nohup's SIGHUP stays ignored
    before = {number: signal.signal(number, stop) for number in numbers if signal.getsignal(number) in usual}
    try:
        yield raised
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_line(ended: subprocess.CompletedProcess[str] | subprocess.CalledProcessError) -> str:
    """The last line that a process wrote to stderr; its exit status where it wrote none, as one that was killed."""
    lines = (ended.stderr or "").strip().splitlines()
    return lines[-1] if lines else f"exit status {ended.returncode}"
