"""Figures of several panels from plain numbers: lines with bands, bars, scores against costs, average ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from fgl_bench.errors import UserError
from fgl_bench.results.plots.style import COLORS, GRAY, MARKS, STYLE, legend_below, line_style, plt, styled
from fgl_bench.results.statistics import Ranks, pareto

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_NUMBERED = 20  # classes with numbers in a confusion matrix
EXACT = 1000  # points of t-SNE
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
        numbers: by name, determines color and marker; names without a number are gray.
    """
    sign = -1 if lower else 1
    front = [(points[name][0], sign * points[name][1]) for name in pareto(points)]
    axis.plot(*zip(*front, strict=True), color="#999999", linewidth=0.8, drawstyle="steps-post", zorder=1)
    for name, (cost, score) in points.items():
        number, half = numbers.get(name), (halves or {}).get(name, 0.0)
        color = GRAY if number is None else COLORS[number % len(COLORS)]
        shape: dict[str, Any] = {"s": 12, "zorder": 1} if number is None else {"s": 28, "label": name, "marker": MARKS[number % len(MARKS)]}
        axis.scatter(cost, sign * score, color=color, **shape)
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


def draw_ranks(parts: Sequence[tuple[Ranks, str]], width: float) -> Figure:
    """Draw average ranks with their intervals, the best on top, a panel with a title for each of ``parts``."""
    counts = [len(ranks.ranks) for ranks, _ in parts]
    with styled():
        size = (width, sum(0.75 + 0.15 * count for count in counts))
        figure, axes = plt.subplots(
            len(parts), 1, figsize=size, squeeze=False, height_ratios=[2 + count for count in counts], layout="constrained"
        )
        for axis, (ranks, title) in zip(axes.flat, parts, strict=True):
            for place, name in enumerate(ranks.ranks):
                axis.plot(ranks.intervals.get(name, ()), [place] * 2 * (name in ranks.intervals), color="#888888", linewidth=1.2)
            axis.plot(list(ranks.ranks.values()), range(len(ranks.ranks)), "o", color="black", markersize=3.5)
            axis.set_yticks(range(len(ranks.ranks)), [f"{name}  {rank:.2f}" for name, rank in ranks.ranks.items()])
            axis.set(title=title, xlabel="average rank" + ", 95 % bootstrap over graphs" * bool(ranks.intervals))
            axis.set_ylim(len(ranks.ranks) - 0.5, -0.5)
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


def tsne_figure(plane: np.ndarray, classes: np.ndarray, clients: np.ndarray, title: str) -> Figure:
    """Draw points of the plane ``[m, 2]`` twice: colored by class ``[m]`` and by client ``[m]``."""
    figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.6), layout="constrained")
    for axis, name, groups in zip(axes, ("class", "client"), (classes, clients), strict=True):
        colors = class_colors(int(groups.max()) + 1)
        for group in np.unique(groups):
            own = groups == group
            axis.scatter(*plane[own].T, color=colors[group], s=6, linewidths=0, label=str(group))
        axis.set(title=f"by {name}", xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=8, markerscale=1.5, handletextpad=0.1, columnspacing=0.8)
    figure.suptitle(title)
    return figure


def planar(points: np.ndarray) -> np.ndarray:
    """Embed in the plane by t-SNE (van der Maaten & Hinton, JMLR 2008), ``[m, d]`` to ``[m, 2]``; deterministic. Distances of more than
    ``EXACT`` points are approximated.

    Raises:
        UserError: scikit-learn is not installed.
    """
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise UserError("t-SNE needs scikit-learn; install it with: pip install 'fgl-bench[plots]'") from error

    perplexity = min(30.0, (len(points) - 1) / 3)
    # Coinciding points (clients with equal classes) give no initial direction.
    spread = points - points.mean(0)
    spread = spread / max(float(spread.std()), 1e-12)
    method = "exact" if len(points) <= EXACT else "barnes_hut"
    return TSNE(2, perplexity=perplexity, init="random", random_state=0, method=method).fit_transform(spread.astype(np.float64))


def class_colors(classes: int) -> np.ndarray:
    """Return a color per class, ``[classes, 3]``."""
    few = np.array([matplotlib.colors.to_rgb(color) for color in COLORS])
    return few if classes <= len(few) else matplotlib.colormaps["gist_ncar"](np.linspace(0.03, 0.95, classes))[:, :3]
