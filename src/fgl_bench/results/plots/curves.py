"""Figures of scores and costs: lines against rounds, bytes, seconds or a setting's value, and bars of what costs consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fgl_bench.papers.figures.figures import Line, percent
from fgl_bench.results.plots.look import COLORS, STYLE, look, plt


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        ticks: names of the positions 0, 1, ... of the lines; none for numbers.
        levels: lines that only their last mean is drawn of, from side to side.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Line] = field(default_factory=dict)
    ticks: Sequence[str] = ()
    levels: Mapping[str, float] = field(default_factory=dict)


def swept(points: Sequence[tuple[int, Mapping]]) -> Line:
    """Scores in percent (``test`` of stored results) at positions 0, 1, ...: those that were run."""
    places = np.array([place for place, _ in points], dtype=float)
    mean, half = np.array([percent(score["mean"]) for _, score in points]), np.array([100 * (score["ci95"] or 0) for _, score in points])
    return places, mean, half


def lines(panels: Sequence[Panel], title: str, wide: int = 3) -> Figure:
    """Panels in rows of ``wide`` with one legend; a line keeps its color in all of them."""
    names = list(dict.fromkeys(name for panel in panels for name in (*panel.lines, *panel.levels)))
    shape = (-(-len(panels) // wide), min(wide, len(panels)))
    with plt.rc_context(STYLE):
        columns = 2 if shape[1] < 3 else 3
        legend = 0.19 * -(-len(names) // columns) + 0.1
        size = (max(3.4 * shape[1] + 0.4, 4.6), 2.6 * shape[0] + 0.5 + legend)
        figure, grid = plt.subplots(*shape, figsize=size, squeeze=False)
        for axis in grid.flat[len(panels) :]:
            axis.set_visible(False)
        for axis, panel in zip(grid.flat, panels, strict=False):
            _fill(axis, panel, {name: look(i) for i, name in enumerate(names)})
        figure.suptitle(title)
        figure.tight_layout(rect=(0, legend / size[1], 1, 1))
        handles: dict = {}
        for axis in grid.flat[: len(panels)]:
            for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(name, handle)
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=columns, fontsize=8)
    return figure


def _fill(axis: plt.Axes, panel: Panel, looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw one panel; ``looks`` are colors and dashes by name."""
    for name, (x, mean, half) in panel.lines.items():
        if panel.ticks:
            style: dict[str, Any] = {"marker": "o", "markersize": 3, "capsize": 2, "linewidth": 1.2}
            axis.errorbar(x, mean, yerr=half, label=name, **looks[name], **style)
        else:
            axis.plot(x, mean, linewidth=1.3, label=name, **looks[name])
            axis.fill_between(x, mean - half, mean + half, color=looks[name]["color"], alpha=0.12, linewidth=0)
    for name, level in panel.levels.items():
        axis.axhline(level, color=looks[name]["color"], linestyle="--", linewidth=1, label=name)
    axis.set(xlabel=panel.x, ylabel=panel.y)
    axis.set_title(panel.title, fontsize=9)
    if panel.ticks:
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, 0), min(high, 100))
        axis.set(xticks=range(len(panel.ticks)), xticklabels=panel.ticks, xlim=(-0.4, len(panel.ticks) - 0.6))
        return
    axis.set_xlim(left=0)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    # The lines, not the bands and not the start, decide what is seen.
    means = [mean[1:] for _, mean, _ in panel.lines.values()]
    seen = np.concatenate([*means, list(panel.levels.values())])
    if seen.size:
        margin = 0.06 * max(np.ptp(seen), 1e-3)
        axis.set_ylim(seen.min() - margin, seen.max() + margin)


def stacked(panels: Mapping[str, Mapping[str, Sequence[float]]], parts: Sequence[str], what: str, title: str) -> Figure:
    """A horizontal bar for every line, made of ``parts``; a column for each panel, with a scale of its own."""
    panels = {panel: found for panel, found in panels.items() if found}
    names = list(dict.fromkeys(name for found in panels.values() for name in found))
    with plt.rc_context(STYLE):
        size = (2.6 * len(panels) + 2.2, 0.3 * len(names) + 1.5)
        figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, sharey=True, layout="constrained")
        for axis, (panel, found) in zip(axes[0], panels.items(), strict=True):
            here = {name: found[name] for name in names if name in found}
            place = [len(names) - 1 - names.index(name) for name in here]
            begin = np.zeros(len(here))
            for number, part in enumerate(parts):
                length = np.array([values[number] for values in here.values()])
                axis.barh(place, length, 0.7, left=begin, color=COLORS[(6, 1)[number % 2]], label=part)
                begin += length
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.set(xlabel=what, yticks=range(len(names)), yticklabels=names[::-1])
            axis.set_title(panel, fontsize=9)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(parts), fontsize=8)
        figure.suptitle(title)
    return figure
