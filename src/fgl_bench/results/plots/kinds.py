"""Figures of the runs in a table: one panel per column and kind of model, one line or bar per row."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from fgl_bench.errors import UserError
from fgl_bench.results.choose import Values
from fgl_bench.results.compare import Block, Compared, column_label, heading, label
from fgl_bench.results.frame import Result
from fgl_bench.results.plots.figures import draw_ranks, draw_tradeoff
from fgl_bench.results.plots.style import (
    COLORS,
    GRAY,
    LETTER,
    MARKS,
    RECEIVED,
    TRAINED,
    columns_of_legend,
    label_ends,
    legend_below,
    line_style,
    plt,
    points,
)
from fgl_bench.results.provenance import on_cpu
from fgl_bench.results.question import is_number
from fgl_bench.results.render import display
from fgl_bench.results.thinned import along

ALONG = {
    "trips": ("client trips", "trips", 1.0),
    "rounds": ("round", "round", 1.0),
    "bytes": ("GB transferred per seed", "bytes", 1e9),
    "time": ("virtual time", "time", 1.0),
}
COSTS: dict[str, tuple[str, Callable[[Mapping], float]]] = {
    "bytes": ("GB transferred per seed", lambda summary: (summary["bytes"]["upload"] + summary["bytes"]["download"]) / 1e9),
    "seconds": ("seconds of training per seed", lambda summary: summary["seconds"].get("train", math.nan) / len(summary["seeds"])),
    "trips": ("client trips per seed", lambda summary: float(summary["client_trips"]["total"])),
}
LABELED = 2.2  # inches of a panel with labels at the ends of its lines


@dataclass(frozen=True)
class PanelOf:
    """One panel: a column of the table and a kind of model."""

    block: Block
    column: Values
    title: str


def shown(row: Values) -> str:
    """Return the display name of a row."""
    return display(label(row))


def title_of(table: Compared, column: Values) -> str:
    """Return the title of a column; empty for the only one."""
    return display(column_label(table.question.cols, column)) if column else ""


def colored(table: Compared) -> dict[Values, int]:
    """Return the number of the color of a row; of more than there are colors, the rows with the highest mean scores have one."""

    def standing(row: Values) -> float:
        scores = [block.scores[row, column] for block in table.blocks for column in table.chosen.columns if (row, column) in block.scores]
        known = [score.better(score.mean) for score in scores if score.mean is not None]
        return sum(known) / len(known) if known else -math.inf

    rows = table.chosen.rows
    most = len(COLORS) if len(rows) <= len(COLORS) else len(COLORS) - 1  # the last one is a gray
    best = set(sorted(rows, key=standing, reverse=True)[:most])
    return {row: number for number, row in enumerate(row for row in rows if row in best)}


def gray_rows(table: Compared) -> list[str]:
    """Return the names of the rows that lines and points show in gray."""
    return [label(row) for row in table.chosen.rows if row not in colored(table)]


def style_of(number: int | None) -> dict[str, Any]:
    """Return color, dashes and order of a line; gray without a number."""
    return {"color": GRAY, "linewidth": 0.7, "zorder": 1} if number is None else line_style(number)


def panels(table: Compared) -> list[PanelOf]:
    """Return the panels, grouped by kind of model."""
    several = len(table.blocks) > 1
    result = []
    for block in table.blocks:
        for column in table.chosen.columns:
            named = title_of(table, column)
            result.append(PanelOf(block, column, "\n".join(filter(None, (named, f"{block.model} model" if several or not named else "")))))
    return result


def unit(table: Compared) -> str:
    """Return the label of the score axis, with the kind of model if all panels show the same."""
    of = f", {table.blocks[0].model} model" if len(table.blocks) == 1 else ""
    return f"{table.unit}{of}"


def grid(count: int, width: float, side: int, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Create a figure with ``count`` panels, at most ``side`` per row, that may share an axis (``sharex``, ``sharey``)."""
    shape = (-(-count // side), min(side, count))
    figure, axes = plt.subplots(*shape, figsize=(width, height * shape[0] + 0.35), squeeze=False, layout="constrained", **shared)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:count])


def curves(table: Compared, width: float, side: int, x: str = "trips") -> Figure:
    """Draw test scores along the run, mean over seeds with 95 % band. Lines are labeled at their ends if they fit, else in a legend."""
    rows = table.chosen.rows
    if table.question.metric not in (None, *(run.summary["metric"] for run in table.chosen.runs.values())):
        raise UserError(f"metric={table.question.metric}: curves show the runs' own metric only; leave it out")
    name, column, scale = ALONG[x]
    histories = {position: history(run, column) for position, run in table.chosen.runs.items()}
    # Servers may not score trained models along the run.
    drawn_panels = [panel for panel in panels(table) if any(panel.block.model in line for line in histories.values())]
    figure, axes = grid(len(drawn_panels), width, side, 1.9, sharey=True)
    labelled, colors = width / min(side, len(drawn_panels)) >= LABELED, colored(table)
    ends: list[dict[str, tuple[float, float, str]]] = []
    for axis, panel in zip(axes, drawn_panels, strict=True):
        ends.append({})
        for row in rows:
            line = histories.get((row, panel.column), {})
            if panel.block.model not in line:
                continue
            spent, mean = np.array(line[column]) / scale, 100 * np.array(line[panel.block.model])
            half = 100 * np.array(line.get(f"{panel.block.model}_half", np.zeros(len(mean))))
            drawn = style_of(colors.get(row))
            axis.plot(spent, mean, label=shown(row) if row in colors else "_", **drawn)
            if row not in colors:
                continue
            low, high = np.maximum(mean - half, 0), np.minimum(mean + half, 100)
            axis.fill_between(spent, low, high, color=drawn["color"], alpha=0.13, linewidth=0)
            ends[-1][shown(row)] = (float(spent[-1]), float(mean[-1]), str(drawn["color"]))
        axis.set_title(panel.title)
        axis.set_xlim(left=0)
        axis.xaxis.set_major_locator(MaxNLocator(4))
    name_axes(axes, side, name, unit(table))
    if not labelled:
        legend_below(figure, axes, columns_of_legend([shown(row) for row in colors], width))
        return figure
    margin = max(len(shown(row)) for row in colors) * LETTER * points("legend.fontsize") / 72 + 0.12
    layout: Any = figure.get_layout_engine()
    layout.set(rect=(0, 0, 1 - margin / width, 1), wspace=margin / width * len(axes))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axis, each in zip(axes, ends, strict=True):
        label_ends(axis, each)
    return figure


def history(run: Result, x: str) -> dict[str, list]:
    """Return scores by evaluation point of a run, or the thinned curve of a stored cell."""
    path = run.folder / "history.csv"
    stored = along(path, x) if path.is_file() else run.summary.get("curve") or {}
    if x not in stored:
        raise UserError(f"{run.folder}: no curve over {x} is stored with {run.summary['algorithm']} on {run.summary['dataset']}")
    return stored


def bars(table: Compared, width: float, side: int) -> Figure:
    """Draw scores with 95 % intervals: one panel per column, one bar per row and kind of model, starting at zero."""
    rows, columns = table.chosen.rows, table.chosen.columns
    heights = np.arange(len(rows))[::-1]
    count = len(table.blocks)
    thick = 0.8 / count
    figure, axes = grid(len(columns), width, side, 0.16 * len(rows) * max(count, 1.4) + 0.75, sharex=True)
    for axis, column in zip(axes, columns, strict=True):
        for number, block in enumerate(table.blocks):
            scored = [(at, block.scores[row, column]) for at, row in zip(heights, rows, strict=True) if (row, column) in block.scores]
            scored = [(at, score) for at, score in scored if score.mean is not None]
            at = np.array([at for at, _ in scored]) + thick * ((count - 1) / 2 - number)
            half = [score.half or 0.0 for _, score in scored]
            color = TRAINED if block.model == "trained" else RECEIVED
            mean = [score.mean or 0.0 for _, score in scored]
            whisker: dict[str, Any] = {"linewidth": 0.7, "capsize": 1.5}
            axis.barh(at, mean, 0.92 * thick, xerr=half, color=color, label=f"{block.model} model", error_kw=whisker)
        axis.set(yticks=heights, yticklabels=[shown(row) for row in rows], title=title_of(table, column))
        axis.grid(axis="y", visible=False)
        axis.xaxis.set_major_locator(MaxNLocator(4))
    axes[0].set_xlim(left=0)  # of all panels, once all are drawn
    name_axes(axes, side, unit(table))
    if count > 1:
        legend_below(figure, axes, count)
    return figure


def lines(table: Compared, width: float, side: int) -> Figure:
    """Draw scores with 95 % intervals against the key of the columns: a line per row, a panel per kind of model.

    Means of some seeds only, such as those that reach a target, are left out with a line on stderr. Positive numbers over more than a
    decade and a half have a logarithmic axis; values that are no numbers are equally far apart.

    Raises:
        UserError: the columns are of several keys.
    """
    keys, columns, rows, colors = table.question.cols, table.chosen.columns, table.chosen.rows, colored(table)
    if len(keys) != 1:
        raise UserError("lines need one key: x=KEY, such as x=lr or x=scenario.attack.fraction")
    numeric = all(is_number(text) for (text,) in columns)
    places = {column: float(column[0]) if numeric else float(number) for number, column in enumerate(columns)}
    figure, axes = grid(len(table.blocks), width, side, 1.9, sharex=True, sharey=True)
    if partial := sum(not score.complete for block in table.blocks for score in block.scores.values()):
        print(f"note: {partial} points are not drawn: not all of their seeds have a value", file=sys.stderr)
    for axis, block in zip(axes, table.blocks, strict=True):
        for row in rows:
            number = colors.get(row)
            scores = {places[column]: block.scores[row, column] for column in columns if (row, column) in block.scores}
            drawn = {x: score for x, score in scores.items() if score.complete and score.mean is not None}
            means = [score.mean or 0.0 for score in drawn.values()]
            reach = [(score.mean or 0.0, math.inf if score.lower else 100 - (score.mean or 0.0)) for score in drawn.values()]
            halves = [[min(score.half or 0.0, limit[end]) for score, limit in zip(drawn.values(), reach, strict=True)] for end in (0, 1)]
            style: dict[str, Any] = {} if number is None else {"marker": MARKS[number % len(MARKS)], "elinewidth": 0.7, "capsize": 1.5}
            known: dict[str, Any] = {"yerr": halves, "label": shown(row)} if number is not None else {}
            axis.errorbar(list(drawn), means, markersize=3, **known, **style, **style_of(number))
        if not numeric:
            tilted: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(columns) > 4 else {}
            axis.set_xticks(list(places.values()), [display(text) for (text,) in columns], **tilted)
        elif min(places.values()) > 0 and max(places.values()) > 30 * min(places.values()):
            axis.set_xscale("log")
            axis.set_xticks(list(places.values()), [text for (text,) in columns])
            axis.xaxis.set_minor_locator(NullLocator())
        axis.set_title(f"{block.model} model" if len(axes) > 1 else "")
    name_axes(axes, side, display(keys[0]), unit(table))
    legend_below(figure, axes, columns_of_legend([shown(row) for row in colors], width))
    return figure


def name_axes(axes: Sequence[Axes], side: int, x: str, y: str = "") -> None:
    """Label the horizontal axis below the lowest panels, and rows and the vertical axis at the first panel of each line."""
    shape = -(-len(axes) // side), min(side, len(axes))
    size: Any = axes[0].get_figure()
    letter = LETTER * points("axes.labelsize") / 72
    wide, high = (max(int(inches / letter), 12) for inches in (size.get_figwidth() / shape[1] - 0.3, size.get_figheight() / shape[0] - 0.6))
    for number, axis in enumerate(axes):
        if number + side >= len(axes):
            axis.set_xlabel(textwrap.fill(x.replace(".", ". "), wide).replace(". ", "."))  # a key breaks at its dots
            axis.tick_params(labelbottom=True)
        if number % side == 0 and y:
            axis.set_ylabel(textwrap.fill(y, high))
        if number % side and not y:
            axis.set_yticklabels([])


def ranks(table: Compared, width: float, side: int) -> Figure:
    """Draw average ranks with their intervals, one panel per kind of model."""
    ranked = [(block, block.ranks) for block in table.blocks if block.ranks is not None]
    if not ranked:
        raise UserError("ranks need at least two rows, and two columns in which all of them have a run and a score; give more cols=")
    named = [replace(each, ranks=renamed(each.ranks), intervals=renamed(each.intervals)) for _, each in ranked]
    titles = [f"{block.model} model, {each.columns} columns" for block, each in ranked]
    return draw_ranks(list(zip(named, titles, strict=True)), width)


def renamed(by_row: Mapping[str, Any]) -> dict[str, Any]:
    return {display(name): each for name, each in by_row.items()}


def costs(table: Compared, width: float, side: int, x: str = "bytes") -> Figure:
    """Draw scores against costs with 95 % intervals; a line joins the Pareto front."""
    if x == "seconds" and len({on_cpu(run.summary) for run in table.chosen.runs.values()}) > 1:
        raise UserError("x=seconds: a CPU made some of these runs, a GPU others; take x=bytes or x=trips, or use one device=")
    drawn, rows, colors, (name, cost) = panels(table), table.chosen.rows, colored(table), COSTS[x]
    figure, axes = grid(len(drawn), width, side, 1.75, sharey=True)
    for axis, panel in zip(axes, drawn, strict=True):
        scores = {row: score for row in rows if (score := panel.block.scores.get((row, panel.column))) and score.mean is not None}
        points = {
            shown(row): (cost(table.chosen.runs[row, panel.column].summary), score.better(score.mean or 0.0))
            for row, score in scores.items()
        }
        halves = {shown(row): score.half or 0.0 for row, score in scores.items()}
        lower = any(score.lower for score in scores.values())
        draw_tradeoff(axis, points, {shown(row): number for row, number in colors.items()}, halves, lower)
        axis.set(title=panel.title)
    name_axes(axes, side, name, unit(table))
    legend_below(figure, axes, columns_of_legend([shown(row) for row in colors], width))
    return figure


def clients(table: Compared, width: float, side: int) -> Figure:
    """Draw the distribution of client scores: one box per row over all seeds; a dot is a client of a seed."""
    drawn, rows = panels(table), table.chosen.rows
    if table.question.metric not in (None, *(run.summary["metric"] for run in table.chosen.runs.values())):
        raise UserError(f"metric={table.question.metric}: clients are scored by the runs' own metric only; leave it out")
    figure, axes = grid(len(drawn), width, side, 0.24 * len(rows) + 0.75, sharex=True)
    heights = np.arange(len(rows))[::-1]
    jitter = np.random.default_rng(0)
    for axis, panel in zip(axes, drawn, strict=True):
        for at, row in zip(heights, rows, strict=True):
            if (row, panel.column) in table.chosen.runs:
                values = 100 * np.array(list(scored_clients(table.chosen.runs[row, panel.column], panel.block.model)))
                axis.scatter(values, at + jitter.uniform(-0.28, 0.28, len(values)), s=2, color=TRAINED, alpha=0.35, linewidths=0)
                thin = {"color": "black", "linewidth": 0.8}
                middle = {"color": COLORS[5], "linewidth": 1.4}
                parts: dict[str, Any] = {"boxprops": thin, "whiskerprops": thin, "capprops": thin, "medianprops": middle}
                axis.boxplot(values, positions=[at], widths=0.6, orientation="horizontal", showfliers=False, **parts)
        axis.set(yticks=heights, yticklabels=[shown(row) for row in rows], title=panel.title, ylim=(-0.6, len(rows) - 0.4))
        axis.grid(axis="y", visible=False)
        axis.xaxis.set_major_locator(MaxNLocator(4))
    own = heading([run.summary["metric"] for run in table.chosen.runs.values()], None)
    of = f", {table.blocks[0].model} model" if len(table.blocks) == 1 else ""
    name_axes(axes, side, f"{own} of a client{table.task}{of}")
    return figure


def scored_clients(run: Result, model: str) -> Iterator[float]:
    """Yield the defined scores of all clients and seeds."""
    per_client = run.summary["test"][model].get("per_client")
    if per_client is None:
        raise UserError(f"{run.folder}: the stored result of {run.summary['algorithm']} has no scores of clients; give a folder of runs")
    yield from (score for seed in per_client for score in seed if score is not None)


KINDS: dict[str, Callable[..., Figure]] = {
    "curves": curves, "bars": bars, "lines": lines, "ranks": ranks, "pareto": costs, "clients": clients,
}  # fmt: skip
