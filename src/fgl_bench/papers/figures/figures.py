"""Figures of scores against trips, client similarities, label distributions."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgl_bench.data.federation import Federation
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.results.plots.look import COLORS, ENDINGS, RECEIVED, STYLE, TRAINED, legend_below, look, plt
from fgl_bench.utils.files import write_bytes

SMALL = 200_000
Curve = Mapping[str, Sequence[float]]  # of pictures.curve
Line = tuple[np.ndarray, np.ndarray, np.ndarray]  # x, mean, half-width of the 95 % interval, each [T]


def percent(score: float | None) -> float:
    """In percent; NaN, which is not drawn, where there is no score."""
    return float("nan") if score is None else 100 * score


def line(curve: Curve, x: str, y: str, units: tuple[float, float] = (1.0, 1.0)) -> Line | None:
    """What the curve has under ``y`` against ``x``, each times its unit; None where it has one of the two not."""
    if x not in curve or y not in curve:
        return None
    along, mean, half = (np.array(curve.get(name, np.zeros(len(curve[x]))), dtype=float) for name in (x, y, f"{y}_half"))
    return along * units[0], mean * units[1], half * units[1]


def curves(panels: Mapping[str, Mapping[str, Curve]], title: str, what: str = "test accuracy") -> Figure:
    """Test scores against client trips: a column per panel, a row for received and one for trained models; a single panel lies flat.

    Args:
        panels: what ``pictures.curve`` returns by line and panel, such as ``{"cora": {"FedAvg": {"trips": ...}}}``; panels without lines
            are left out.
        what: the score's name.
    """
    panels = {panel: lines for panel, lines in panels.items() if lines}
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    with plt.rc_context(STYLE):
        shape = (len(MODELS), len(panels)) if len(panels) > 1 else (1, len(MODELS))
        wide = 3 if shape[1] < 3 else 4
        legend = 0.19 * -(-len(names) // wide) + 0.1
        size = (4.2 * shape[1] + 0.4, 2.6 * shape[0] + 0.5 + legend)
        figure, grid = plt.subplots(*shape, figsize=size, squeeze=False, sharex=True, sharey="col" if len(panels) > 1 else "all")
        axes = grid.reshape(len(MODELS), len(panels))
        for column, (panel, lines) in enumerate(panels.items()):
            for row, model in enumerate(MODELS):
                axis: Axes = axes[row][column]
                for name, curve in lines.items():
                    place = names.index(name)
                    drawn_as = look(place)
                    drawn = line(curve, "trips", model, (1, 100))
                    if drawn is None:  # trained models that were not scored along the run
                        continue
                    trips, mean, half = drawn
                    axis.plot(trips, mean, linewidth=1.3, label=name, **drawn_as)
                    top = np.minimum(mean + half, 100)
                    axis.fill_between(trips, mean - half, top, color=drawn_as["color"], alpha=0.12, linewidth=0)
                axis.set_title(f"{panel}, {model} model", fontsize=9)
                axis.set_xlim(left=0)
        for axis in grid[-1]:
            axis.set_xlabel("client trips")
        for axis in grid[:, 0]:
            axis.set_ylabel(f"{what} in %")
        _limit(axes)
        handles = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
        figure.suptitle(title)
        figure.tight_layout(rect=(0, legend / size[1], 1, 1))
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=wide, fontsize=8)
    return figure


def _limit(axes: np.ndarray) -> None:
    """Let the lines, not the bands, decide what is seen."""
    for column in axes.T:
        low = min((float(np.min(line.get_ydata()[1:])) for axis in column for line in axis.get_lines()), default=0.0)
        high = max((float(np.max(line.get_ydata())) for axis in column for line in axis.get_lines()), default=100.0)
        margin = 0.06 * max(high - low, 1.0)
        column[0].set_ylim(low - margin, high + margin)


def heatmaps(
    rows: Mapping[str, Mapping[int, np.ndarray]], trips: Sequence[int], title: str, what: str = "cosine similarity of clients"
) -> Figure:
    """Client similarities (or other numbers from 0 to 1): a row per method, a column per trip count; grey where a client had not reported.

    Args:
        rows: matrices ``[C, C]`` by trip count and method.
    """
    with plt.rc_context(STYLE | {"axes.grid": False, "axes.spines.top": True, "axes.spines.right": True}):
        shape = (len(rows), len(trips))
        figure, axes = plt.subplots(*shape, figsize=(2.3 * shape[1] + 1.2, 2.4 * shape[0] + 0.5), squeeze=False, layout="constrained")
        colors = matplotlib.colormaps["viridis"].with_extremes(bad="#cccccc")
        picture = None
        for line, (name, matrices) in zip(axes, rows.items(), strict=True):
            for axis, at in zip(line, trips, strict=True):
                axis.set_xticks([])
                axis.set_yticks([])
                if at in matrices:
                    picture = axis.imshow(matrices[at], vmin=0, vmax=1, cmap=colors, interpolation="nearest")
                axis.set_title(f"trip {at}", fontsize=9)
            line[0].set_ylabel(name)
        if picture is not None:
            figure.colorbar(picture, ax=axes, label=what, shrink=0.8)
        figure.suptitle(title)
    return figure


def label_counts(federation: Federation) -> np.ndarray:
    """Labelled nodes by class and client, ``[Y, C]``."""
    labels = (client.labels for client in federation.clients)
    return np.stack([np.bincount(each[each >= 0], minlength=federation.num_classes) for each in labels], 1)


def label_distributions(counts: Mapping[str, Mapping[str, np.ndarray]], title: str) -> Figure:
    """Which labels every client holds: a row per dataset, a column per split; a circle's area is the number of nodes.

    Args:
        counts: ``[Y, C]`` by split and dataset.
    """
    splits = list(dict.fromkeys(split for of_dataset in counts.values() for split in of_dataset))
    with plt.rc_context(STYLE):
        heights = [0.22 * max(len(m) for m in of_dataset.values()) + 0.9 for of_dataset in counts.values()]
        figure, axes = plt.subplots(
            len(counts), len(splits), figsize=(5.0 * len(splits), sum(heights) + 0.3), squeeze=False, layout="constrained",
            gridspec_kw={"height_ratios": heights},
        )  # fmt: skip
        for line, (dataset, of_dataset) in zip(axes, counts.items(), strict=True):
            for axis, split in zip(line, splits, strict=True):
                matrix = of_dataset[split]
                label, client = np.nonzero(matrix)
                area = matrix[label, client] / max(m.max() for m in of_dataset.values())
                axis.scatter(client, label, s=110 * area, color=COLORS[6], linewidths=0)
                axis.set_title(f"{dataset}, {split}", fontsize=9)
                axis.set_xlim(-1, matrix.shape[1])
                axis.set_ylim(-0.7, len(matrix) - 0.3)
                axis.set_yticks(range(len(matrix)))
                axis.set_xticks(range(matrix.shape[1]))
                axis.tick_params(labelsize=7)
            line[0].set_ylabel("class")
        for axis in axes[-1]:
            axis.set_xlabel("client")
        figure.suptitle(title)
    return figure


def bars(tests: Mapping[str, Mapping[str, Mapping]], title: str, what: str = "test accuracy") -> Figure:
    """Test scores with 95 % intervals: a column per dataset, a bar per line, received and trained models side by side.

    Args:
        tests: the ``test`` part of stored results by line and dataset.
        what: the score's name.
    """
    tests = {dataset: lines for dataset, lines in tests.items() if lines}
    with plt.rc_context(STYLE):
        tallest = max(len(lines) for lines in tests.values())
        size = (4.6 * len(tests), 0.45 * tallest + 1.2)
        figure, axes = plt.subplots(1, len(tests), figsize=size, squeeze=False, sharey=True, layout="constrained")
        for axis, (dataset, lines) in zip(axes[0], tests.items(), strict=True):
            place = np.arange(len(lines))[::-1]
            for model, color, shift in zip(MODELS, (RECEIVED, TRAINED), (0.19, -0.19), strict=True):
                mean = [percent(test[model]["mean"]) for test in lines.values()]
                half = [100 * (test[model]["ci95"] or 0) for test in lines.values()]
                axis.barh(place + shift, mean, 0.36, xerr=half, color=color, label=model, error_kw={"linewidth": 0.8})
            axis.set(title=dataset, xlabel=f"{what} in %", yticks=place, yticklabels=list(lines))
            axis.set_xlim(left=0)
        legend_below(figure, axes[0], len(MODELS))
        figure.suptitle(title)
    return figure


def simple_bars(values: Mapping[str, Mapping[str, float]], what: str, title: str) -> Figure:
    """One number for every line, a column per dataset."""
    names = list(dict.fromkeys(name for lines in values.values() for name in lines))
    with plt.rc_context(STYLE):
        size = (3.0 * len(values) + 1.5, 0.3 * len(names) + 1.2)
        figure, axes = plt.subplots(1, len(values), figsize=size, squeeze=False, sharey=True, layout="constrained")
        place = np.arange(len(names))[::-1]
        for axis, (dataset, lines) in zip(axes[0], values.items(), strict=True):
            axis.barh(place, [lines.get(name, 0) for name in names], 0.7, color=COLORS[6])
            axis.set(title=dataset, xlabel=what, yticks=place, yticklabels=names)
        figure.suptitle(title)
    return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Write ``path`` with the endings png, svg where that is small, and pdf; closes the figure."""
    written = []
    for ending in ("png", "svg", "pdf"):
        target, data = path.with_suffix(f".{ending}"), io.BytesIO()
        with plt.rc_context(STYLE):
            figure.savefig(data, format=ending, **ENDINGS[ending] | ({"dpi": 130} if ending == "png" else {}))
        if ending == "svg" and data.tell() > SMALL:
            target.unlink(missing_ok=True)
            continue
        write_bytes(target, data.getvalue())
        written.append(target)
    plt.close(figure)
    return written
