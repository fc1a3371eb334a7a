"""Diagrams of average ranks with their critical difference (Demsar, JMLR 2006, figure 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgl_bench.results.plots.style import LETTER, plt, points
from fgl_bench.results.statistics import Ranks

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
