"""The exception for errors that a user can fix, and the ranges of keys."""

from __future__ import annotations

import math
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
PLUGINS = PACKAGE.with_name("hydra_plugins")
LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class UserError(Exception):
    """A mistake in the configuration, the data or the surroundings of a run.

    The message is one line and says what is wrong, which key sets it and what is allowed. The command line prints it
    without a traceback and exits with a non-zero status.
    """


class Unsuited(UserError):
    """A method cannot run on the chosen model or split; the message says what it needs.

    :func:`fgl_bench.config.pairing.suited` adds the name of the method and the command that would work.
    """


def printable(text: str) -> str:
    """``text`` with its control characters (terminals obey some) and lone surrogates escaped, lines apart."""
    return text if text.isprintable() else "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)


def one_of(values: Iterable[Any]) -> str:
    """``a, b, c``, as yaml would write them."""
    return ", ".join("null" if value is None else str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def require(allowed: bool, key: str, value: Any, rule: str) -> None:
    """Raise ``key=value: must be <rule>`` unless ``allowed``."""
    if not allowed:
        several = isinstance(value, Sequence) and not isinstance(value, str)
        raise UserError(f"{key}={list(value) if several else one_of([value])}: must be {rule}")


def require_choice(key: str, value: Any, allowed: Collection[Any]) -> None:
    """Raise UserError unless ``value`` is one of the allowed ones."""
    if value not in allowed:
        require(False, key, value, "one of " + one_of(allowed))


@dataclass(frozen=True)
class Range:
    """The numbers that a key may have.

    Attributes:
        least, most: the ends; None leaves the upper one open (infinity itself is never allowed, json has none).
        above, below: the lower or the upper end itself is not allowed.
    """

    least: float
    most: float | None = None
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        high = value < math.inf if self.most is None else value < self.most if self.below else value <= self.most
        return high and (value > self.least if self.above else value >= self.least)

    def __str__(self) -> str:
        if self.most is None:
            return f"above {self.least}" if self.above else f"{self.least} or more"
        return f"{'above ' if self.above else ''}{self.least} to {'below ' if self.below else ''}{self.most}"


def at_least(least: float) -> Range:
    """``least`` or more."""
    return Range(least)


def above(least: float) -> Range:
    """More than ``least``."""
    return Range(least, above=True)


def between(least: float, most: float) -> Range:
    """From ``least`` to ``most``, both allowed."""
    return Range(least, most)


SHARE = between(0, 1)


def ranges_of(cls: type) -> dict[str, Range]:
    """The ``ranges`` of a class by key: those that it declares, over those of its bases."""
    return {key: allowed for base in reversed(cls.__mro__) for key, allowed in vars(base).get("ranges", {}).items()}


def check_range(key: str, value: Any, allowed: Range) -> None:
    """Raise UserError unless ``value``, or every entry of a list, lies in the range; None is left to the type of the key."""
    entries = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    numbers = [entry for entry in entries if isinstance(entry, int | float) and not isinstance(entry, bool)]
    if not all(number in allowed for number in numbers):
        shown = list(value) if entries is value else value
        raise UserError(f"{key}={shown} is out of range; allowed: {allowed}")


def check_ranges(built: object, group: str) -> None:
    """:func:`check_range` of all keys that the class of ``built`` declares ranges for."""
    for key, allowed in ranges_of(type(built)).items():
        check_range(f"{group}.{key}", getattr(built, key), allowed)


def raised_by_user(error: BaseException) -> str | None:
    """``my_method.py:12 in mix: ValueError: ...``: the last line of a user's own module that the package called when ``error`` was raised.

    Returns:
        None where no such module was called: the error is the package's own.
    """
    inside, last = False, None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename).resolve()
        if path.is_relative_to(PACKAGE) or path.is_relative_to(PLUGINS):
            inside = True
        elif inside and path.is_file() and not any(path.is_relative_to(folder) for folder in LIBRARIES):
            last = frame
    if last is None:
        return None
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    function = "" if last.name == "<module>" else f" in {last.name}"
    return f"{last.filename}:{last.lineno}{function}: {type(error).__name__}{f': {message}' if message else ''}"
