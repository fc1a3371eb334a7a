"""Figures of several panels from plain numbers: lines with bands, bars, scores against costs, average ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from fgl_bench.results.plots.style import COLORS, LETTER, MARKS, STYLE, TEXT, legend_below, line_style, plt, points, styled
from fgl_bench.results.statistics import Ranks, pareto

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_NUMBERED = 20  # classes with numbers in a confusion matrix
Line = tuple[np.ndarray, np.ndarray, np.ndarray]  # x, mean, half-width of the 95 % interval, each [T]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        ticks: names of the positions 0, 1, ...; empty for a numeric axis.
        levels: names of lines drawn as a horizontal line at their last mean.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Line] = field(default_factory=dict)
    ticks: Sequence[str] = ()
    levels: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def grid(
    count: int, wide: int, size: tuple[float, float], title: str, names: int, sharey: bool = False
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of ``count`` panels of ``size`` inches, ``wide`` per row, with a legend of ``names`` entries below."""
    shape = -(-count // wide), min(wide, count)
    columns = 2 if shape[1] < 3 else 3
    with plt.rc_context(STYLE):
        whole = max(size[0] * shape[1] + 0.4, 4.6), size[1] * shape[0] + 0.6 + 0.19 * -(-names // columns)
        figure, axes = plt.subplots(*shape, figsize=whole, squeeze=False, layout="constrained", sharey=sharey)
        for axis in axes.flat[count:]:
            axis.set_visible(False)
        yield figure, list(axes.flat[:count])
        legend_below(figure, axes.flat[:count], columns if names > 1 else 0)
        figure.suptitle(title)


def lines(panels: Sequence[Panel], title: str, wide: int = 3) -> Figure:
    """Draw lines with 95 % bands; a line has the same color in all panels."""
    names = list(dict.fromkeys(name for panel in panels for name in (*panel.lines, *panel.levels)))
    with grid(len(panels), wide, (3.4, 2.6), title, len(names)) as (figure, axes):
        for axis, panel in zip(axes, panels, strict=True):
            draw_lines(axis, panel, {name: line_style(number) for number, name in enumerate(names)})
    return figure


def draw_lines(axis: Axes, panel: Panel, styles: Mapping[str, Mapping[str, str]]) -> None:
    for name, (x, mean, half) in panel.lines.items():
        if panel.ticks:
            axis.errorbar(x, mean, yerr=half, label=name, marker="o", markersize=3, capsize=2, linewidth=1.2, **styles[name])  # type: ignore[arg-type]
        else:
            axis.plot(x, mean, linewidth=1.3, label=name, **styles[name])  # type: ignore[arg-type]
            axis.fill_between(x, mean - half, mean + half, color=styles[name]["color"], alpha=0.12, linewidth=0)
    for name, level in panel.levels.items():
        axis.axhline(level, color=styles[name]["color"], linestyle="--", linewidth=1, label=name)
    axis.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    if panel.ticks:
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, 0), min(high, 100))
        axis.set(xticks=range(len(panel.ticks)), xticklabels=panel.ticks, xlim=(-0.4, len(panel.ticks) - 0.6))
        return
    axis.set_xlim(left=0)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    # Limits follow the lines, not the bands or the start.
    seen = np.concatenate([*(mean[1:] for _, mean, _ in panel.lines.values()), list(panel.levels.values())])
    if seen.size:
        margin = 0.06 * max(np.ptp(seen), 1e-3)
        axis.set_ylim(seen.min() - margin, seen.max() + margin)


Bars = Mapping[str, Sequence[tuple[float, float]]]  # by name: (length, half-width of the 95 % interval) per part


def bars(panels: Mapping[str, Bars], parts: Sequence[str], what: str, title: str, stacked: bool = False) -> Figure:
    """Draw horizontal bars, one panel per column. Parts of a name are below each other, or end to end (``stacked``)."""
    panels = {panel: filled for panel, filled in panels.items() if filled}
    names = list(dict.fromkeys(name for filled in panels.values() for name in filled))
    colors = (COLORS[2], COLORS[6]) if len(parts) > 1 and not stacked else (COLORS[6], COLORS[1])
    thick = 0.76 if stacked else 0.76 / len(parts)
    with grid(len(panels), len(panels), (3.2, 0.3 * len(names) + 0.6), title, len(parts), sharey=True) as (figure, axes):
        for axis, (panel, filled) in zip(axes, panels.items(), strict=True):
            heights = np.array([len(names) - 1 - names.index(name) for name in filled])
            begin = np.zeros(len(filled))
            for number, part in enumerate(parts):
                length, half = np.array([values[number] for values in filled.values()]).T
                shift = 0 if stacked else thick * ((len(parts) - 1) / 2 - number)
                error = {"xerr": half, "error_kw": {"linewidth": 0.8}} if half.any() else {}
                label = part if len(parts) > 1 else "_"
                axis.barh(heights + shift, length, 0.95 * thick, left=begin, color=colors[number % 2], label=label, **error)
                begin = begin + length if stacked else begin
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.set(xlabel=what, yticks=range(len(names)), yticklabels=names[::-1], title=panel, xlim=(0, None))
    return figure


Points = Mapping[str, tuple[float, float]]  # by name, (cost, score); larger scores are better


def tradeoffs(panels: Mapping[str, Points], title: str, unit: str, lower: bool = False) -> Figure:
    """Draw scores against GB transferred, one panel per column with at least two names.

    Args:
        panels: (bytes per seed, score) by name and column.
        lower: the scores are negated; their absolute values are drawn.
    """
    panels = {name: points for name, points in panels.items() if len(points) > 1}
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    with grid(len(panels), 4, (2.9, 2.5), title, len(names)) as (figure, axes):
        for axis, (panel, points) in zip(axes, panels.items(), strict=True):
            shown = {name: (moved / 1e9, score) for name, (moved, score) in points.items()}
            draw_tradeoff(axis, shown, {name: names.index(name) for name in shown}, lower=lower)
            axis.set(title=panel, xlabel="GB moved per seed", ylabel=unit)
    return figure


def draw_tradeoff(
    axis: Axes, points: Points, numbers: Mapping[str, int], halves: Mapping[str, float] | None = None, lower: bool = False
) -> None:
    """Draw costs and scores with 95 % intervals. A line joins the Pareto front; the cost axis is logarithmic.

    Args:
        numbers: by name, determines color and marker.
    """
    sign = -1 if lower else 1
    front = [(points[name][0], sign * points[name][1]) for name in pareto(points)]
    axis.plot(*zip(*front, strict=True), color="#999999", linewidth=0.8, drawstyle="steps-post", zorder=1)
    for name, (cost, score) in points.items():
        number, half = numbers[name], (halves or {}).get(name, 0.0)
        color = COLORS[number % len(COLORS)]
        axis.scatter(cost, sign * score, s=28, label=name, color=color, marker=MARKS[number % len(MARKS)])
        if half:
            axis.errorbar(cost, sign * score, yerr=half, color=color, elinewidth=0.7, capsize=1.5)
    scale_of_costs(axis, [cost for cost, _ in points.values()])


def scale_of_costs(axis: Axes, costs: Sequence[float]) -> None:
    """Set a logarithmic axis around the values, with a 0 at its left end if 0 is among them."""
    positive = [value for value in costs if value > 0]
    low, high = min(positive, default=1.0), max(positive, default=1.0)
    room = max(1.7, (high / low) ** 0.08)  # for a marker at the edge
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [tick for power in powers for digit in (1, 2, 5) if low / 1.6 <= (tick := digit * 10.0**power) <= 1.6 * high]
    shown = ticks[:: -(-len(ticks) // 4)]  # at most four
    if len(positive) == len(costs):
        axis.set_xscale("log")
    else:
        axis.set_xscale("symlog", linthresh=low / 2, linscale=max(0.5, math.log10(room)))
        shown = [0.0, *shown]
    axis.set_xticks(shown, [f"{value:g}" for value in shown])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(low / room if len(positive) == len(costs) else -low / 4, room * high)


def critical_difference(ranks: Ranks, title: str) -> Figure:
    """Draw methods on a line of ranks, best on the left; a bar joins methods that do not differ significantly."""
    test = "" if ranks.friedman is None else f", Friedman p = {ranks.friedman:.2g}"
    with styled():
        return ranks_figure([(ranks, f"{title}: average ranks over {ranks.columns} columns{test}")], TEXT)


LINE, GROUP = 0.15, 0.08  # height of a name and of a bar, in inches
SHORTEST = 1.2  # minimum length of the line of ranks, in inches


def diagram_height(ranks: Ranks) -> float:
    """Return the height in inches."""
    return 0.88 + LINE * -(-len(ranks.ranks) // 2) + GROUP * len(ranks.groups)


def ranks_diagram(axis: Axes, ranks: Ranks, title: str, width: float) -> None:
    """Draw methods on a line of ranks, best on the left; a bar joins methods that do not differ significantly.

    Args:
        axis: has ``width`` inches and the height :func:`diagram_height`.
    """
    names, values, height = list(ranks.ranks), list(ranks.ranks.values()), diagram_height(ranks)
    half, last = -(-len(names) // 2), max(len(names), 2)
    texts = [f"{name}  {value:.2f}" if i < half else f"{value:.2f}  {name}" for i, (name, value) in enumerate(ranks.ranks.items())]
    font = points("legend.fontsize")
    sides = [max(map(len, part), default=0) * LETTER * font / 72 + 0.1 for part in (texts[:half], texts[half:])]
    shrunk = min(1.0, (width - SHORTEST) / sum(sides))
    font, left, right = font * shrunk, sides[0] * shrunk, width - sides[1] * shrunk

    def at(rank: float) -> float:
        return left + 0.1 + (rank - 1) / (last - 1) * (right - left - 0.2)

    axis.set(xlim=(0, width), ylim=(0, height))
    axis.axis("off")
    axis.text(width / 2, height - 0.03, title, ha="center", va="top", fontsize=points("axes.titlesize"))
    bar, line = height - 0.38, height - 0.65
    end = min(at(1 + ranks.difference), width - 0.05)
    axis.plot([at(1), end], [bar, bar], color="black", linewidth=1.2, marker="|", markersize=4)
    label = f"critical difference {ranks.difference:.2f}"
    half_width = len(label) * LETTER * font / 144
    middle = min(max((at(1) + end) / 2, half_width), width - half_width)
    axis.text(middle, bar + 0.04, label, ha="center", va="bottom", fontsize=font)
    axis.plot([at(1), at(last)], [line, line], color="black", linewidth=0.8)
    every = math.ceil((len(str(last)) + 1) * LETTER * font / 72 / (at(2) - at(1)))  # label as many ranks as fit
    for rank in range(1, last + 1):
        axis.plot([at(rank)] * 2, [line, line + 0.04], color="black", linewidth=0.8)
        if (rank - 1) % every == 0:
            axis.text(at(rank), line + 0.05, str(rank), ha="center", va="bottom", fontsize=font)
    for number, group in enumerate(ranks.groups):
        ends = at(ranks.ranks[group[0]]) - 0.03, at(ranks.ranks[group[-1]]) + 0.03
        axis.plot(ends, [line - GROUP * (number + 0.8)] * 2, color="black", linewidth=2.2, solid_capstyle="butt")
    below = line - GROUP * (len(ranks.groups) + 0.5)
    for i, (value, text) in enumerate(zip(values, texts, strict=True)):
        row = i if i < half else len(names) - 1 - i
        y, edge = below - LINE * (row + 0.6), left if i < half else right
        axis.plot([at(value), at(value), edge], [line, y, y], color="#555555", linewidth=0.6)
        axis.text(edge - 0.03 if i < half else edge + 0.03, y, text, ha="right" if i < half else "left", va="center", fontsize=font)


def ranks_figure(parts: Sequence[tuple[Ranks, str]], width: float) -> Figure:
    """Draw diagrams below each other, each with its title."""
    heights = [diagram_height(ranks) for ranks, _ in parts]
    figure, axes = plt.subplots(len(parts), 1, figsize=(width, sum(heights)), squeeze=False, height_ratios=heights)
    figure.subplots_adjust(0, 0, 1, 1, hspace=0)
    for axis, (ranks, title) in zip(axes.flat, parts, strict=True):
        ranks_diagram(axis, ranks, title, width)
    return figure


def confusion_figure(counts: DataFrame, model: str) -> Figure:
    """Draw the shares of the predicted classes in every class, with the numbers of test nodes.

    Args:
        counts: test nodes by class (row) and predicted class (column).
        model: ``received`` or ``trained``, for the title.
    """
    shares = counts.div(counts.sum(axis=1).clip(lower=1), axis=0).to_numpy()
    size = min(max(0.38 * len(counts) + 1.0, 2.4), 7.0)
    figure, axis = plt.subplots(figsize=(size, size), layout="constrained")
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row, column in np.ndindex(shares.shape) if len(counts) <= MOST_NUMBERED else ():
        color = "white" if shares[row, column] > 0.5 else "black"
        axis.text(column, row, str(counts.iat[row, column]), ha="center", va="center", color=color, fontsize=6)
    ticks = {} if len(counts) > MOST_NUMBERED else {"xticks": range(len(counts)), "yticks": range(len(counts))}
    axis.set(xlabel="predicted class", ylabel="class", title=f"{model} model, test nodes", **ticks)
    axis.grid(visible=False)
    return figure
