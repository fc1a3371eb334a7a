"""Runs of published cells over many draws of the masks, to bound the effect of a paper's single draw.

Some code draws masks once and reuses them; the paper's draw is unknown. ``results/draws/<paper>/`` repeats these runs with new masks per
seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtrit  # Student's quantile; scipy.stats takes half a second to import

PER_SEED = "split.per_seed=[masks]"


class Interval(NamedTuple):
    """95 % prediction interval of a single draw from ``draws`` normal ones: mean +- t s sqrt(1 + 1/draws)."""

    mean: float
    low: float
    high: float
    draws: int


def single_draw(scores: Sequence[float]) -> Interval | None:
    """Compute the interval from one score per draw; None for fewer than three."""
    if len(scores) < 3:
        return None
    mean, away = fmean(scores), float(stdtrit(len(scores) - 1, 0.975)) * stdev(scores) * math.sqrt(1 + 1 / len(scores))
    return Interval(mean, mean - away, mean + away, len(scores))
