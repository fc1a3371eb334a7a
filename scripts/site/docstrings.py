"""Docstrings as the site shows them: references become links, and class attributes a list like others.

An extension of griffe, which reads the docstrings for mkdocstrings.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`(?P<text>~?(?P<name>[\w.]+))`")

SEVERAL = re.compile(r"^(?P<indent> +)(?P<names>\w+(?:, \w+)+): (?P<text>\S.*(?:\n(?P=indent) +\S.*)*)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites the docstring of every object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = ROLE.sub(linked, obj.docstring.value)
            text = re.sub(r"^Class attributes:$", "Attributes: Class attributes", text, flags=re.MULTILINE)
            obj.docstring.value = SEVERAL.sub(one_by_one, text)


def linked(match: re.Match[str]) -> str:
    """A link where the name is a full one and the site shows the object, else its name as code."""
    name, last = match["name"], match["name"].rpartition(".")[2]
    return f'<autoref optional identifier="{name}"><code>{last}</code></autoref>' if name.startswith("fgl_bench.") else f"`{name}`"


def one_by_one(match: re.Match[str]) -> str:
    """Attributes that share a description (``steps, keep: ...``), a line each: griffe knows one name per line."""
    return "\n".join(f"{match['indent']}{name}: {match['text']}" for name in match["names"].split(", "))
