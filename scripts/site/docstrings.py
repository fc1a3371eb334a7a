"""Docstrings as the site shows them: references become links, and class attributes a list like others.

An extension of griffe, which reads the docstrings for mkdocstrings.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr):`(?P<text>~?(?P<name>[\w.]+))`")


class Docstrings(griffe.Extension):
    """Rewrites the docstring of every object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = ROLE.sub(linked, obj.docstring.value)
            obj.docstring.value = re.sub(r"^Class attributes:$", "Attributes: Class attributes", text, flags=re.MULTILINE)


def linked(match: re.Match[str]) -> str:
    """A link where the name is a full one and the site shows the object, else its name as code."""
    name, last = match["name"], match["name"].rpartition(".")[2]
    return f'<autoref optional identifier="{name}"><code>{last}</code></autoref>' if name.startswith("fgl_bench.") else f"`{name}`"
