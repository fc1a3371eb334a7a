"""Figures of every table's statistics: average ranks with their critical difference, and scores against bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.reporting import analysis
from fgl_bench.reporting.cells import stored_of
from fgl_bench.reporting.plan import Paper, plan
from fgl_bench.reporting.plots.figures import COLOURS, STYLE
from fgl_bench.reporting.published import Printed
from fgl_bench.reporting.statistics import Ranks, pareto

MARKS = "osD^vP*X<>hd"


def critical_difference(ranks: Ranks, title: str) -> Figure:
    """Methods on a line of ranks, the best on the left; a bar joins those that are not told apart (Demsar, JMLR 2006, figure 1)."""
    names, values = list(ranks.ranks), list(ranks.ranks.values())
    half = -(-len(names) // 2)
    depth = 0.35 * len(ranks.groups) + 0.4
    with plt.rc_context(STYLE | {"axes.grid": False}):
        figure, axis = plt.subplots(figsize=(8.4, 1.3 + 0.22 * (half + len(ranks.groups))))
        low, high = 1, len(names)
        span = high - low
        axis.set_xlim(low - 0.45 * span, high + 0.45 * span)
        axis.set_ylim(-depth - 0.55 * half - 0.4, 1.9)
        axis.axis("off")
        axis.plot([low, high], [0, 0], color="black", linewidth=1)
        for rank in range(low, high + 1):
            axis.plot([rank, rank], [0, 0.15], color="black", linewidth=1)
            axis.text(rank, 0.25, str(rank), ha="center", va="bottom", fontsize=8)
        axis.plot([low, low + ranks.difference], [1.2, 1.2], color="black", linewidth=1.4)
        axis.text(low, 1.35, f"critical difference {ranks.difference:.2f}", ha="left", va="bottom", fontsize=8)
        for number, group in enumerate(ranks.groups):
            ends = ranks.ranks[group[0]] - 0.015 * span, ranks.ranks[group[-1]] + 0.015 * span
            axis.plot(ends, [-0.3 - 0.35 * number] * 2, color="black", linewidth=3, solid_capstyle="round")
        for place, (name, value) in enumerate(zip(names, values, strict=True)):
            left = place < half
            row = place if left else len(names) - 1 - place
            y, edge = -depth - 0.55 * row, low - 0.04 * span if left else high + 0.04 * span
            axis.plot([value, value, edge], [0, y, y], color="#555555", linewidth=0.8)
            text = f"{name}  {value:.2f}" if left else f"{value:.2f}  {name}"
            axis.text(edge, y, f"{text} " if left else f" {text}", ha="right" if left else "left", va="center", fontsize=8)
        test = "" if ranks.friedman is None else f", Friedman p = {ranks.friedman:.2g}"
        figure.suptitle(f"{title}: average ranks over {ranks.columns} columns{test}", fontsize=9)
        figure.tight_layout()
    return figure


def bytes_against_score(panels: Mapping[str, Mapping[str, tuple[float, float]]], title: str, unit: str) -> Figure:
    """A panel for each column: what a method moves and what it reaches; a line joins those on the Pareto front.

    Args:
        panels: (bytes a seed, score) by method and column.
    """
    panels = {name: points for name, points in panels.items() if points}
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    wide = min(len(panels), 4)
    with plt.rc_context(STYLE):
        shape = (-(-len(panels) // wide), wide)
        figure, grid = plt.subplots(*shape, figsize=(2.9 * wide + 0.5, 2.5 * shape[0] + 0.2 * -(-len(names) // wide) + 0.8), squeeze=False)
        for axis in grid.flat[len(panels) :]:
            axis.set_visible(False)
        for axis, (panel, points) in zip(grid.flat, panels.items(), strict=False):
            front = [(points[name][0] / 1e9, points[name][1]) for name in pareto(points)]
            axis.plot(*zip(*front, strict=True), color="#999999", linewidth=1, drawstyle="steps-post", zorder=1)
            for name, (moved, score) in points.items():
                place = names.index(name)
                axis.scatter(moved / 1e9, score, s=28, color=COLOURS[place % len(COLOURS)], marker=MARKS[place % len(MARKS)], label=name)
            axis.set_xscale("symlog", linthresh=0.01)
            axis.set_xlim(left=-0.002)
            axis.set_title(panel, fontsize=9)
            axis.set_xlabel("GB moved a seed")
        for axis in grid[:, 0]:
            axis.set_ylabel(unit)
        handles = {handle.get_label(): handle for axis in grid.flat for handle in axis.collections}
        legend = 0.2 * -(-len(handles) // wide) + 0.1
        figure.suptitle(title)
        figure.tight_layout(rect=(0, legend / figure.get_figheight(), 1, 1))
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=wide, fontsize=8)
    return figure


def draw(paper: Paper, results: Path, published: Printed) -> Iterator[tuple[str, Figure]]:
    """Names and figures of every table that enough cells of ``results/cells`` are there for, received and trained models apart."""
    tables = [table for table in paper.tables if analysis.scorer(table.measure) is not None]
    cells = plan(paper, tables)
    stored = stored_of(cells, results / "cells" / paper.name)
    for table in tables:
        planned = {(cell.row.key, cell.column.key): cell for cell in cells if cell.table == table.key}
        unit = "trips to the target, negative" if table.measure == "trips" else "score in %"
        for model in MODELS:
            part = analysis.analyse(paper, table, planned, stored, published, model)
            title = f"{paper.title}, table {table.key}, {model} models"
            if part.ranks is not None:
                yield f"table{table.key}_ranks_{model}", critical_difference(part.ranks, title)
            if any(len(points) > 1 for points in part.points.values()):
                yield f"table{table.key}_bytes_{model}", bytes_against_score(part.points, title, unit)
