"""Figures of every table's statistics: average ranks with their critical difference, and scores against bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fgl_bench.results.plots.drawn import WIDTHS
from fgl_bench.results.plots.look import COLORS, MARKS, STYLE, plt, styled
from fgl_bench.results.plots.ranks import ranks_figure
from fgl_bench.results.statistics import Ranks, pareto


def critical_difference(ranks: Ranks, title: str) -> Figure:
    """Methods on a line of ranks, the best on the left; a bar joins those that do not differ significantly."""
    test = "" if ranks.friedman is None else f", Friedman p = {ranks.friedman:.2g}"
    with styled():
        return ranks_figure([(ranks, f"{title}: average ranks over {ranks.columns} columns{test}")], WIDTHS["text"])


def bytes_against_score(panels: Mapping[str, Mapping[str, tuple[float, float]]], title: str, unit: str, lower: bool = False) -> Figure:
    """A panel for each column with at least two methods: bytes and scores; a line joins the Pareto front.

    Args:
        panels: (bytes per seed, score) by method and column; larger scores are better.
        lower: the scores are negatives of what is drawn.
    """
    panels = {name: points for name, points in panels.items() if len(points) > 1}
    sign = -1 if lower else 1
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    wide = min(len(panels), 4)
    with plt.rc_context(STYLE):
        shape = (-(-len(panels) // wide), wide)
        figure, grid = plt.subplots(*shape, figsize=(2.9 * wide + 0.5, 2.5 * shape[0] + 0.2 * -(-len(names) // wide) + 0.8), squeeze=False)
        for axis in grid.flat[len(panels) :]:
            axis.set_visible(False)
        for axis, (panel, points) in zip(grid.flat, panels.items(), strict=False):
            front = [(points[name][0] / 1e9, sign * points[name][1]) for name in pareto(points)]
            axis.plot(*zip(*front, strict=True), color="#999999", linewidth=1, drawstyle="steps-post", zorder=1)
            for name, (moved, score) in points.items():
                place = names.index(name)
                style: dict[str, Any] = {"color": COLORS[place % len(COLORS)], "marker": MARKS[place % len(MARKS)]}
                axis.scatter(moved / 1e9, sign * score, s=28, label=name, **style)
            scale_of_bytes(axis, [moved / 1e9 for moved, _ in points.values()])
            axis.set_title(panel, fontsize=9)
            axis.set_xlabel("GB moved per seed")
        for axis in grid[:, 0]:
            axis.set_ylabel(unit)
        handles = {handle.get_label(): handle for axis in grid.flat for handle in axis.collections}
        legend = 0.2 * -(-len(handles) // wide) + 0.1
        figure.suptitle(title)
        figure.tight_layout(rect=(0, legend / figure.get_figheight(), 1, 1))
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=wide, fontsize=8)
    return figure


def scale_of_bytes(axis: Axes, moved: Sequence[float]) -> None:
    """A logarithmic axis around the values, with 0 at its left if there is one."""
    positive = [value for value in moved if value > 0]
    low, high = min(positive, default=1.0), max(positive, default=1.0)
    room = max(1.7, (high / low) ** 0.08)  # for a marker at the edge
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    places = [place for power in powers for digit in (1, 2, 5) if low / 1.6 <= (place := digit * 10.0**power) <= 1.6 * high]
    shown = places[:: -(-len(places) // 4)]  # at most four
    if len(positive) == len(moved):
        axis.set_xscale("log")
    else:
        axis.set_xscale("symlog", linthresh=low / 2, linscale=max(0.5, math.log10(room)))
        shown = [0.0, *shown]
    axis.set_xticks(shown, [f"{value:g}" for value in shown])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(low / room if len(positive) == len(moved) else -low / 4, room * high)
