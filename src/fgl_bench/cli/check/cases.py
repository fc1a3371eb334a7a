"""Runs checks. A case is a promise in words, and a function that checks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Cases = Mapping[str, Callable[[Any], str | None]]


class Broken(AssertionError):
    """Raised for a broken promise, with details as message; ``last`` stops further checks."""

    def __init__(self, message: str, last: bool = False):
        super().__init__(message)
        self.last = last


class Untried(Exception):
    """Raised if a promise does not apply; the message is the reason."""


def tried(name: str, cases: Cases, subject: object) -> int:
    """Check every case on ``subject`` and print a line for each; the function may return a note.

    Returns:
        0, or 1 if a promise is broken.
    """
    broken = 0
    for words, check in cases.items():
        try:
            note = check(subject)
            print(f"  kept    {words}{f' ({note})' if note else ''}")
        except Untried as reason:
            print(f"  untried {words}: {reason}")
        except Broken as reason:
            broken += 1
            print(f"  BROKEN  {words}: {reason}")
            if reason.last:
                break
    print(f"{name}: {'keeps all promises' if not broken else f'{broken} promise(s) broken'}")
    return int(bool(broken))
