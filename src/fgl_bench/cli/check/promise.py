"""Checks promises one after the other and prints the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Broken(AssertionError):
    """A promise is broken; the message says how."""


class Unusable(Broken):
    """A broken promise after which no further one can be checked."""


class Untried(Exception):
    """A promise does not apply to this object; the message says why."""


def tried(name: str, promises: Mapping[Callable[..., Any], str], *facts: object) -> int:
    """Call every promise with ``facts`` and print a line for each, with what the promise returns as a note.

    Returns:
        0, or 1 if one is broken.
    """
    broken = 0
    for promise, words in promises.items():
        try:
            note = promise(*facts)
            print(f"  kept    {words}{f' ({note})' if note else ''}")
        except Untried as reason:
            print(f"  untried {words}: {reason}")
        except Broken as reason:
            broken += 1
            print(f"  BROKEN  {words}: {reason}")
            if isinstance(reason, Unusable):
                break
    print(f"{name}: {'keeps all promises' if not broken else f'{broken} promise(s) broken'}")
    return int(bool(broken))
