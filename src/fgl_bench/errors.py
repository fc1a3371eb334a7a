"""The one exception that stands for "a person can fix this"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class UserError(Exception):
    """A mistake in the configuration, the data or the surroundings of a run.

    The message is one line and says what is wrong, which key sets it and what is allowed. The command line prints it
    without a traceback and exits with a non-zero status.
    """


class Unsuited(UserError):
    """A method cannot run on the chosen model or split; the message says what it needs.

    :func:`fgl_bench.config.suited` adds the name of the method and the command that would work.
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
