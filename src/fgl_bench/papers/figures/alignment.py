"""Figures of methods that align clients: class embeddings in the plane, learned filters, accuracy by hyper-parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.figures.figures import percent
from fgl_bench.results.plots.look import COLORS, MARKS, STYLE, legend_below, plt


def read_final_state(run: Path) -> dict[str, np.ndarray]:
    """The final state of a run's clients, ``[S, C, ...]`` by name; empty if it stored none."""
    path = next((path for path in (run / "final_state.npz", run / "portrait.npz") if path.is_file()), None)  # the latter: its old name
    if path is None:
        return {}
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def class_points(state: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first seed's class means of clients that have the class: points ``[m, d]``, classes ``[m]``, clients ``[m]``."""
    client, label = np.nonzero(state["class_counts"][0])
    return state["class_means"][0][client, label], label, client


def closeness(points: np.ndarray, labels: np.ndarray) -> float:
    """Mean distance of two points of one class over that of two points of different classes; NaN without such pairs."""
    apart = np.sqrt(np.maximum(((points[:, None] - points[None]) ** 2).sum(-1), 0))
    same, other = labels[:, None] == labels[None], ~np.eye(len(points), dtype=bool)
    if not (same & other).any() or same.all():
        return float("nan")
    return float(apart[same & other].mean() / apart[~same].mean())


def planar(points: np.ndarray) -> np.ndarray:
    """t-SNE into the plane (van der Maaten & Hinton, JMLR 2008), ``[m, d]`` to ``[m, 2]``, the same at every call.

    Raises:
        UserError: scikit-learn is not installed.
    """
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise UserError("t-SNE needs scikit-learn; install it with: pip install 'fgl-bench[plots]'") from error

    perplexity = min(30.0, (len(points) - 1) / 3)
    # Points that coincide (clients whose classes are equal) are no direction to begin with.
    spread = points - points.mean(0)
    spread = spread / max(float(spread.std()), 1e-12)
    return TSNE(2, perplexity=perplexity, init="random", random_state=0, method="exact").fit_transform(spread.astype(np.float64))


def embeddings(panels: Mapping[str, Mapping[str, np.ndarray]], title: str) -> Figure:
    """t-SNE of class means, a panel for each run: a point is a class of a client, its color the class, its shape the client."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 4.0), squeeze=False, layout="constrained")
        classes = max(state["class_counts"].shape[2] for state in panels.values())
        colors = _class_colors(classes)
        for axis, (name, state) in zip(axes[0], panels.items(), strict=True):
            points, label, client = class_points(state)
            plane = planar(points)
            for i in np.unique(client):
                own = client == i
                axis.scatter(*plane[own].T, c=colors[label[own]], marker=MARKS[i % len(MARKS)], s=26, linewidths=0)
            axis.set_title(f"{name}\nsame class / other classes: {closeness(points, label):.2f}", fontsize=9)
            axis.set(xticks=[], yticks=[])
            axis.grid(False)
        handles = [plt.Line2D([], [], marker="o", linestyle="", color=colors[c], label=f"class {c}") for c in range(classes)]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(classes, 9), fontsize=7, handletextpad=0.1)
        figure.suptitle(title)
    return figure


def _class_colors(classes: int) -> np.ndarray:
    few = np.array([matplotlib.colors.to_rgb(color) for color in COLORS])
    return few if classes <= len(few) else matplotlib.colormaps["gist_ncar"](np.linspace(0.03, 0.95, classes))[:, :3]


def filters(panels: Mapping[str, Mapping[str, np.ndarray]], title: str) -> Figure:
    """The first seed's filter coefficients by order, a panel for each run: a line is a client, a thick one its target."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.2), squeeze=False, sharey=True, layout="constrained")
        for axis, (name, state) in zip(axes[0], panels.items(), strict=True):
            own = state["coefficients"][0]
            order = np.arange(own.shape[1])
            # Without targets there are no clusters: the clients' mean stands in the place of one.
            targets = state["targets"][0] if "targets" in state else np.broadcast_to(own.mean(0), own.shape)
            different, member = np.unique(targets, axis=0, return_inverse=True)
            for number, target in enumerate(different):
                color = COLORS[1 + number % (len(COLORS) - 1)] if "targets" in state else COLORS[0]
                for line in own[member.ravel() == number]:
                    axis.plot(order, line, color=color, linewidth=0.8, alpha=0.6)
                axis.plot(order, target, color=color, linewidth=2.4, linestyle="-" if "targets" in state else "--")
            away = np.sqrt(((own - own.mean(0)) ** 2).sum(1)).mean()
            axis.set_title(f"{name}\nmean distance from the clients' mean: {away:.4f}", fontsize=9)
            axis.set(xlabel="order of the basis", xticks=order[:: max(1, len(order) // 6)])
        axes[0][0].set_ylabel("coefficient")
        figure.suptitle(title)
    return figure


def sensitivity(panels: Mapping[str, Sequence[tuple[str, Mapping]]], chosen: Mapping[str, str], what: str, title: str) -> Figure:
    """Test scores with 95 % intervals against the values of every hyper-parameter, for received and trained models.

    Args:
        panels: by hyper-parameter, values and the ``test`` part of their stored results.
        chosen: the value that the other panels have, marked by a star.
        what: the score's name.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(panels), figsize=(2.6 * len(panels) + 0.6, 2.8), squeeze=False, sharey=True, layout="constrained"
        )
        for axis, (key, points) in zip(axes[0], panels.items(), strict=True):
            place, names = np.arange(len(points)), [value for value, _ in points]
            for model, color, dash in zip(MODELS, (COLORS[2], COLORS[6]), ("-", "--"), strict=True):
                mean = np.array([percent(test[model]["mean"]) for _, test in points])
                half = [100 * (test[model]["ci95"] or 0) for _, test in points]
                axis.errorbar(place, mean, yerr=half, color=color, linestyle=dash, marker="o", markersize=3, capsize=2, label=model)
                for own in place[[value == chosen[key] for value in names]]:
                    axis.plot(own, mean[own], color=color, marker="*", markersize=10, zorder=3)
            axis.set(xlabel=key, xticks=place, xticklabels=names, xlim=(-0.5, len(points) - 0.5))
        axes[0][0].set_ylabel(f"{what} in %")
        legend_below(figure, axes[0], len(MODELS))
        figure.suptitle(title)
    return figure
