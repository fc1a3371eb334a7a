"""The one exception that stands for "a person can fix this"."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class UserError(Exception):
    """A mistake in the configuration, the data or the surroundings of a run.

    The message is one line and says what is wrong, which key sets it and what is allowed. The command line prints it
    without a traceback and exits with a non-zero status.
    """


def one_of(values: Iterable[Any]) -> str:
    """``a, b, c``, as yaml would write them."""
    return ", ".join("null" if value is None else str(value) for value in values)


def require(allowed: bool, key: str, value: Any, rule: str) -> None:
    """Raise ``key=value: must be <rule>`` unless ``allowed``."""
    if not allowed:
        several = isinstance(value, Sequence) and not isinstance(value, str)
        raise UserError(f"{key}={list(value) if several else one_of([value])}: must be {rule}")


def check_ranges(method: object, **ranges: tuple[float, float | None]) -> None:
    """Raise UserError unless every key of the method lies between its two ends; None leaves the upper one open."""
    for key, (least, most) in ranges.items():
        value = getattr(method, key)
        if not (value >= least and (most is None or value <= most)):
            allowed = f"{least} or more" if most is None else f"{least} to {most}"
            raise UserError(f"algorithm.{key}={value} is out of range; allowed: {allowed}")


def raised_by_user(error: BaseException) -> str | None:
    """``my_method.py:12 in mix: ValueError: ...``: the last line of a user's own module that the package called when ``error`` was raised.

    Returns:
        None where no such module was called: the error is the package's own.
    """
    inside, last = False, None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename).resolve()
        if path.is_relative_to(PACKAGE):
            inside = True
        elif inside and path.is_file() and not any(path.is_relative_to(folder) for folder in LIBRARIES):
            last = frame
    if last is None:
        return None
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    place = "" if last.name == "<module>" else f" in {last.name}"
    return f"{last.filename}:{last.lineno}{place}: {type(error).__name__}{f': {message}' if message else ''}"
