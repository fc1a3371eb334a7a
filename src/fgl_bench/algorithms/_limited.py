"""Base of stand-ins for a batch or an operator that support only some of its attributes."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from fgl_bench.errors import Unsuited


class Limited:
    """Raises Unsuited for unsupported attributes.

    Class attributes:
        refusal: the message, with ``{name}`` for the name of the attribute.
    """

    refusal: ClassVar[str]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsuited(self.refusal.format(name=name))
