"""Figures of federations themselves: how clients' graphs differ, and who hears whom."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from scipy.sparse.csgraph import connected_components, shortest_path

from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.papers.figures.figures import label_counts
from fgl_bench.results.plots.look import COLORS, STYLE, plt


def homophily(client: ClientGraph, num_classes: int) -> np.ndarray:
    """Share of equal labels among the neighbors of a class's nodes, ``[Y]``; NaN where a class has no edge."""
    source, target = client.edges
    labeled = (client.labels[source] >= 0) & (client.labels[target] >= 0)
    source, target = client.labels[source[labeled]], client.labels[target[labeled]]
    edges = np.bincount(source, minlength=num_classes)
    same = np.bincount(source[source == target], minlength=num_classes)
    return np.divide(same, edges, out=np.full(num_classes, np.nan), where=edges > 0)


def distances(client: ClientGraph) -> tuple[float, float]:
    """Mean length of the shortest paths between connected nodes (NaN without any), and the largest component's share of the nodes."""
    n = client.num_nodes
    matrix = sp.csr_matrix((np.ones(client.edges.shape[1]), client.edges), shape=(n, n))
    lengths = shortest_path(matrix, "D", directed=False, unweighted=True)
    between = lengths[np.isfinite(lengths) & (lengths > 0)]
    _, component = connected_components(matrix, directed=False)
    return float(between.mean()) if between.size else float("nan"), float(np.bincount(component).max() / n)


def heterogeneity(federation: Federation, title: str) -> Figure:
    """Nodes and homophily by class and client, path lengths and largest components by client (DFed-SST, figure 2)."""
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
        place = np.arange(len(clients))
        axes[2].bar(place, lengths, color=COLORS[2], width=0.7)
        axes[2].set(xlabel="client", ylabel="mean shortest path", xticks=place)
        other = axes[2].twinx()
        other.plot(place, shares, color=COLORS[5], marker="o", markersize=4, linewidth=1)
        other.set(ylim=(0, 1.05), ylabel="largest component's share of nodes")
        other.spines["right"].set_visible(True)
        figure.suptitle(title)
    return figure


def graphs(matrices: Mapping[str, np.ndarray], title: str) -> Figure:
    """Mixing matrices ``[C, C]`` as directed graphs on a circle: an arrow from j to i where i hears j, darker for more weight.

    A node's area grows with the number of clients that it hears.
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
