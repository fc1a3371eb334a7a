"""Runs of printed cells over many draws of the masks: how far a paper's one draw can be from another one.

Where code draws masks once and keeps them, it is not known which draw a paper had. ``results/draws/<paper>/`` has the same runs
with masks drawn anew in every seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtrit  # Student's quantile; scipy.stats, which calls it, takes half a second to import

PER_SEED = "split.per_seed=[masks]"


class Interval(NamedTuple):
    """Where 95 % of single draws lie, for a normal distribution of ``draws`` of them: mean +- t s sqrt(1 + 1/draws)."""

    mean: float
    low: float
    high: float
    draws: int


def single_draw(scores: Sequence[float]) -> Interval | None:
    """From one score a draw; None for fewer than three."""
    if len(scores) < 3:
        return None
    mean, away = fmean(scores), float(stdtrit(len(scores) - 1, 0.975)) * stdev(scores) * math.sqrt(1 + 1 / len(scores))
    return Interval(mean, mean - away, mean + away, len(scores))
