"""Blocks of pages that scripts fill: the lines between ``<!-- name: what -->``, or ``<!-- name -->``, and ``<!-- /name -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def filled(text: str, name: str, lines: Callable[[str], Iterable[str]]) -> str:
    """``text`` with the lines of every block ``name`` replaced.

    Args:
        lines: gives the lines of a block from its ``what``, which is empty where it has none.

    Raises:
        SystemExit: there is no such block.
    """
    text, count = block(name).subn(lambda match: f"{match[1]}{chr(10).join(lines(match['what'] or ''))}\n{match[3]}", text)
    if not count:
        raise SystemExit(f"there is no block <!-- {name} --> to fill")
    return text


def block(name: str) -> re.Pattern[str]:
    """Return the pattern of a block."""
    return re.compile(rf"(<!-- {name}(?:: (?P<what>[^\n]*))? -->\n).*?(<!-- /{name} -->)", re.DOTALL)
