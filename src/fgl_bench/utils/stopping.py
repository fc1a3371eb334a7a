"""Deferred termination: a run only notes a signal, so that it can save its state before it ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from fgl_bench.utils import processes
from fgl_bench.utils.processes import Stopped

SIGNALS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if (number := getattr(signal, name, None)) is not None]

ONCE = 0.5
"""Seconds within which signals are one: torchrun sends them to a worker's group, and who watches the worker passes them on to it."""


@dataclass
class Stop:
    """The signals that this process has received.

    Attributes:
        held: True while signals are only noted.
        number: of the signal that was noted; None where there was none.
        since: when that was, by ``time.monotonic``.
        children: processes to pass it on to.
    """

    held: bool = False
    number: int | None = None
    since: float = 0.0
    children: set[int] = field(default_factory=set)

    def note(self, number: int) -> None:
        """The first signal, and pass it on as SIGUSR1."""
        if self.number is None:
            self.number, self.since = number, time.monotonic()
            for child in self.children:
                os.kill(child, signal.SIGUSR1)


STOP = Stop()


@contextmanager
def held_back(done: str) -> Iterator[None]:
    """Inside, the first signal to end the process is only noted in :data:`STOP`, the second is obeyed at once; but not within :data:`ONCE`.

    Code inside checks it, saves its state and raises :class:`Stopped`, as if the signal came at the end.

    Args:
        done: the saved state to report if nothing was raised, because the work was then complete.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield
        return
    owner, before = os.getpid(), {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        again = STOP.number is not None and time.monotonic() - STOP.since > ONCE
        STOP.note(number)
        if again and os.getpid() == owner:
            obey(number, before[number])

    ours = [number for number, handler in before.items() if plain(handler)]
    STOP.held, STOP.number = True, None
    for number in ours:
        signal.signal(number, note)
    saved = done
    try:
        yield
    except Stopped as stopped:
        STOP.number, saved = STOP.number or stopped.number, stopped.saved
    finally:
        STOP.held, noted, STOP.number = False, STOP.number, None
        for number in ours:
            signal.signal(number, before[number])
    if noted is not None:
        try:
            obey(noted, before[noted])
        except KeyboardInterrupt as interruption:
            interruption.saved = saved  # type: ignore[attr-defined]  # what the last line says
            raise


def plain(handler: Any) -> bool:
    """Return True if a handler is Python's or this package's; others (of a cluster's launcher) stay."""
    return handler in (signal.SIG_DFL, signal.default_int_handler) or getattr(handler, "__module__", None) == processes.__name__


def obey(number: int, handler: Any) -> None:
    """Do what the signal does with this handler; raises KeyboardInterrupt."""
    if callable(handler):
        handler(number, None)
    raise Stopped(number)


def combined(stopped: Sequence[Stopped]) -> Stopped:
    """Several as one."""
    one = Stopped(stopped[0].number)
    one.saved = ", ".join(dict.fromkeys(each.saved for each in stopped if each.saved))
    return one


def note_in_child(parent: int) -> None:
    """In a forked child, where its parent holds signals back: note the signals that the parent passes on; without a parent, end at once."""

    def note(number: int, frame: FrameType | None) -> None:
        if os.getppid() != parent:
            os._exit(1)
        STOP.note(number)

    STOP.children.clear()
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, note if STOP.held else signal.SIG_DFL)
