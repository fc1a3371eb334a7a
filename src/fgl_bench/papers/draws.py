"""Runs of printed cells over many draws of the masks: how far a paper's one draw can be from another one.

Where code draws masks once and keeps them, it is not known which draw a paper had. ``results/draws/<paper>/`` has the same runs
with masks drawn anew in every seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from scipy.special import stdtrit  # Student's quantile; scipy.stats, which calls it, takes half a second to import

from fgl_bench.results.cells import ANYTHING, covers, read_cells

PER_SEED = "split.per_seed=[masks]"
Draws = Sequence[Mapping[str, Any]]


class Range(NamedTuple):
    """Where 95 % of single draws lie, for a normal distribution of ``draws`` of them: mean +- t s sqrt(1 + 1/draws)."""

    mean: float
    low: float
    high: float
    draws: int


def read_draws(folder: Path) -> list[dict[str, Any]]:
    """The stored runs."""
    return list(read_cells(folder).values())


def draws_of(draws: Draws, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The run over many draws that differs from this planned configuration in seeds and in what varies with them only."""
    wanted = _fixed(config if "data" in config else {**config, "data": ANYTHING})
    return next((cell for cell in draws if covers(wanted, _fixed(cell["config"]))), None)


def _fixed(config: Mapping[str, Any]) -> dict[str, Any]:
    split = {key: value for key, value in config["split"].items() if key != "per_seed"}
    return {**{key: value for key, value in config.items() if key != "seeds"}, "split": split}


def single_draw(scores: Sequence[float]) -> Range | None:
    """From one score a draw; None for fewer than three."""
    if len(scores) < 3:
        return None
    mean, away = fmean(scores), float(stdtrit(len(scores) - 1, 0.975)) * stdev(scores) * math.sqrt(1 + 1 / len(scores))
    return Range(mean, mean - away, mean + away, len(scores))
