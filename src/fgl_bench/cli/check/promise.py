"""Trying promises one after the other and telling the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Broken(AssertionError):
    """A promise that is not kept, in words."""


class Unusable(Broken):
    """One without which no further promise can be tried."""


class Untried(Exception):
    """A promise that says nothing about this object, and why."""


def tried(name: str, promises: Mapping[Callable[..., str | None], str], *facts: object) -> int:
    """Call every promise with ``facts`` and print a line for each; what a promise returns is told beside it.

    Returns:
        0, or 1 where one is broken.
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
