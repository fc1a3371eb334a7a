"""Figures of federations and method states: similarities, labels, class embeddings, filters, communication graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import scipy.sparse as sp
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from scipy.sparse.csgraph import connected_components, shortest_path

from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.results.plots.figures import class_colors, planar
from fgl_bench.results.plots.style import COLORS, MARKS, STYLE, plt


def heatmaps(
    rows: Mapping[str, Mapping[int, np.ndarray]], trips: Sequence[int], title: str, what: str = "cosine similarity of clients"
) -> Figure:
    """Draw client similarities (or other values from 0 to 1): one row per method, one column per trip count; gray if not reported yet.

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
    """Count labeled nodes by class and client, ``[Y, C]``."""
    labels = (client.labels for client in federation.clients)
    return np.stack([np.bincount(each[each >= 0], minlength=federation.num_classes) for each in labels], 1)


def label_distributions(counts: Mapping[str, Mapping[str, np.ndarray]], title: str) -> Figure:
    """Draw the labels of every client: one row per dataset, one column per split; circle areas are numbers of nodes.

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


def read_final_state(run: Path) -> dict[str, np.ndarray]:
    """Read the final state of a run's clients, ``[S, C, ...]`` by name; empty if none is stored."""
    path = next((path for path in (run / "final_state.npz", run / "portrait.npz") if path.is_file()), None)  # the latter: its old name
    if path is None:
        return {}
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def class_points(state: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first seed's class means of clients that have the class: points ``[m, d]``, classes ``[m]``, clients ``[m]``."""
    client, label = np.nonzero(state["class_counts"][0])
    return state["class_means"][0][client, label], label, client


def closeness(points: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean distance within classes over that between classes; NaN without such pairs."""
    distance = np.sqrt(np.maximum(((points[:, None] - points[None]) ** 2).sum(-1), 0))
    same, other = labels[:, None] == labels[None], ~np.eye(len(points), dtype=bool)
    if not (same & other).any() or same.all():
        return float("nan")
    return float(distance[same & other].mean() / distance[~same].mean())


def embeddings(panels: Mapping[str, Mapping[str, np.ndarray]], title: str) -> Figure:
    """Draw t-SNE of class means, one panel per run. A point is a class of a client; color is the class, shape the client."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 4.0), squeeze=False, layout="constrained")
        classes = max(state["class_counts"].shape[2] for state in panels.values())
        colors = class_colors(classes)
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


def filters(panels: Mapping[str, Mapping[str, np.ndarray]], title: str) -> Figure:
    """Draw the first seed's filter coefficients by order, one panel per run. A line is a client, a thick line its target."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.2), squeeze=False, sharey=True, layout="constrained")
        for axis, (name, state) in zip(axes[0], panels.items(), strict=True):
            own = state["coefficients"][0]
            order = np.arange(own.shape[1])
            # Without targets, the mean of the clients is used.
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


def homophily(client: ClientGraph, num_classes: int) -> np.ndarray:
    """Return the share of equal labels among neighbors, per class ``[Y]``; NaN for a class without edges."""
    source, target = client.edges
    labeled = (client.labels[source] >= 0) & (client.labels[target] >= 0)
    source, target = client.labels[source[labeled]], client.labels[target[labeled]]
    edges = np.bincount(source, minlength=num_classes)
    same = np.bincount(source[source == target], minlength=num_classes)
    return np.divide(same, edges, out=np.full(num_classes, np.nan), where=edges > 0)


def distances(client: ClientGraph) -> tuple[float, float]:
    """Return the mean shortest path between connected nodes (NaN without any) and the largest component's share of nodes."""
    n = client.num_nodes
    matrix = sp.csr_matrix((np.ones(client.edges.shape[1]), client.edges), shape=(n, n))
    lengths = shortest_path(matrix, "D", directed=False, unweighted=True)
    between = lengths[np.isfinite(lengths) & (lengths > 0)]
    _, component = connected_components(matrix, directed=False)
    return float(between.mean()) if between.size else float("nan"), float(np.bincount(component).max() / n)


def heterogeneity(federation: Federation, title: str) -> Figure:
    """Draw nodes and homophily by class and client, path lengths and largest components by client (DFed-SST, figure 2)."""
    classes, clients = federation.num_classes, federation.clients
    maps = {
        "nodes": label_counts(federation),
        "share of neighbors of the same class": np.stack([homophily(client, classes) for client in clients], 1),
    }
    lengths, shares = zip(*map(distances, clients), strict=True)
    with plt.rc_context(STYLE | {"axes.grid": False}):
        figure, axes = plt.subplots(1, 3, figsize=(13, 3.2), layout="constrained")
        for axis, (name, matrix) in zip(axes, maps.items(), strict=False):
            picture = axis.imshow(matrix, aspect="auto", cmap="viridis", interpolation="nearest")
            axis.set(xlabel="client", ylabel="class", xticks=range(len(clients)), yticks=range(classes))
            figure.colorbar(picture, ax=axis, label=name)
        position = np.arange(len(clients))
        axes[2].bar(position, lengths, color=COLORS[2], width=0.7)
        axes[2].set(xlabel="client", ylabel="mean shortest path", xticks=position)
        other = axes[2].twinx()
        other.plot(position, shares, color=COLORS[5], marker="o", markersize=4, linewidth=1)
        other.set(ylim=(0, 1.05), ylabel="largest component's share of nodes")
        other.spines["right"].set_visible(True)
        figure.suptitle(title)
    return figure


def graphs(matrices: Mapping[str, np.ndarray], title: str) -> Figure:
    """Draw mixing matrices ``[C, C]`` as directed graphs on a circle: an arrow from j to i if i receives from j, darker for more weight.

    A node's area grows with the number of clients that it receives from.
    """
    with plt.rc_context(STYLE | {"axes.grid": False}):
        figure, axes = plt.subplots(1, len(matrices), figsize=(3.1 * len(matrices), 3.5), squeeze=False, layout="constrained")
        for axis, (name, matrix) in zip(axes[0], matrices.items(), strict=True):
            count = len(matrix)
            turn = np.pi / 2 - 2 * np.pi * np.arange(count) / count
            spots = np.stack([np.cos(turn), np.sin(turn)], 1)
            heard = (matrix > 0) & ~np.eye(count, dtype=bool)
            for i, j in zip(*np.nonzero(heard), strict=True):
                arrow = FancyArrowPatch(
                    spots[j], spots[i], arrowstyle="-|>", mutation_scale=7, shrinkA=6, shrinkB=7, linewidth=0.8,
                    connectionstyle="arc3,rad=0.08", color=COLORS[6], alpha=0.15 + 0.85 * float(matrix[i, j] / matrix.max()),
                )  # fmt: skip
                axis.add_patch(arrow)
            axis.scatter(*spots.T, s=60 + 25 * heard.sum(1), color="white", edgecolor=COLORS[0], zorder=3)
            for i, (x, y) in enumerate(spots):
                axis.text(x, y, str(i), ha="center", va="center", fontsize=7, zorder=4)
            axis.set(title=name, xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
            axis.axis("off")
        figure.suptitle(title)
    return figure
