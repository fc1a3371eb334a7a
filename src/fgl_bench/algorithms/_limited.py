"""What stands in for a batch or an operator with a part of what a backbone may ask of it."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from fgl_bench.errors import Unsuited


class Limited:
    """Refuses what it has not.

    Class attributes:
        refusal: what the method cannot do, with ``{name}`` for what was asked for.
    """

    refusal: ClassVar[str]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsuited(self.refusal.format(name=name))
