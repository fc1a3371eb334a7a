"""Learning-rate schedules: by which factor the clients' learning rate is multiplied in each round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fgl_bench.errors import SHARE, Range, above, at_least


class Schedule:
    """A schedule over the rounds of a run."""

    def factor(self, number: int, rounds: int) -> float:
        """Return the factor in round ``number``, from 0 to ``rounds - 1``."""
        return 1.0


@dataclass
class Constant(Schedule):
    """The learning rate of ``lr`` in every round."""


@dataclass
class Cosine(Schedule):
    """Half a cosine from 1 to ``final`` (Loshchilov and Hutter, ICLR 2017, without restarts)."""

    ranges: ClassVar[dict[str, Range]] = {"final": SHARE}

    final: float

    def factor(self, number: int, rounds: int) -> float:
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * number / rounds)) / 2


@dataclass
class Step(Schedule):
    """``decay`` to the power of the number of completed periods of ``every`` rounds; an exponential schedule with ``every=1``."""

    ranges: ClassVar[dict[str, Range]] = {"every": at_least(1), "decay": above(0)}

    every: int
    decay: float

    def factor(self, number: int, rounds: int) -> float:
        return self.decay ** (number // self.every)


@dataclass
class Warmup(Schedule):
    """A linear rise over the first ``rounds`` rounds, from ``1 / rounds`` of the learning rate to all of it."""

    ranges: ClassVar[dict[str, Range]] = {"rounds": at_least(1)}

    rounds: int

    def factor(self, number: int, rounds: int) -> float:
        return min((number + 1) / self.rounds, 1.0)
