"""What stands in for a batch or an operator with a part of what a backbone may ask of it."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from fgl_bench.errors import UserError


class Limited:
    """Refuses what it has not.

    Class attributes:
        refusal: the error, with ``{name}`` for what was asked for.
    """

    refusal: ClassVar[str]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UserError(self.refusal.format(name=name))
