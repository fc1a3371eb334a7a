"""Label propagation with bounded clusters, which METIS then divides: parts of graphs that METIS and Louvain cannot hold in memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch

from fgl_bench.data.graph import Graph
from fgl_bench.data.out_of_core import in_blocks
from fgl_bench.data.splits.base import Split
from fgl_bench.data.storage import release
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.utils.seeding import derive_seed, generator

BLOCK = 1 << 21
"""Edges of a block of nodes that choose their labels at the same time."""

TOGETHER = 8
"""Blocks that see the same labels. A constant, so that the number of threads changes nothing."""

TURNS = 4
"""Turns in which the nodes of a block choose: neighbors that choose at once would only swap their labels."""

ENOUGH = 100
"""Clusters a client that METIS is given at most, if more levels of clusters get there."""


@dataclass(frozen=True)
class Weighted:
    """A graph whose nodes are clusters.

    Attributes:
        edges: ``[2, E]`` both directions, sorted by row; may be mapped from a file.
        weights: ``[E]`` int32 edges of the original graph that an edge stands for; None: one each.
        sizes: ``[N]`` nodes of the original graph in every cluster.
    """

    edges: np.ndarray
    weights: np.ndarray | None
    sizes: np.ndarray

    @property
    def num_nodes(self) -> int:
        return self.sizes.size


def label_propagation(graph: Weighted, cap: int, sweeps: int, seed: int) -> np.ndarray:
    """``[N]`` cluster of every node, numbered from 0.

    Every node begins alone. In a sweep each takes the label that most of its edges lead to, of those whose cluster still has room;
    ties are drawn. The result is a function of graph and ``seed`` and does not depend on the number of threads.

    Args:
        cap: nodes of the original graph that a cluster may hold.
        sweeps: times that every node chooses.
    """
    clusters = Clusters(graph, np.concatenate([[0], np.cumsum(degrees(graph))]), np.arange(graph.num_nodes), graph.sizes.copy(), cap)
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        for sweep in range(sweeps):
            moved = 0
            for group in groups(clusters.starts):
                for turn in range(TURNS):
                    wishes = list(threads.map(partial(clusters.wishes, turn, f"{seed} {sweep}"), group))
                    moved += sum(clusters.move(nodes, targets) for nodes, targets in wishes)
            if moved <= graph.num_nodes // 1000:
                break
    return np.unique(clusters.labels, return_inverse=True)[1]


@dataclass(frozen=True)
class Clusters:
    """Clusters on their way.

    Attributes:
        starts: ``[N + 1]`` where a node's edges begin.
        labels: ``[N]`` the cluster of every node.
        held: ``[N]`` nodes of the original graph in every cluster.
        cap: how many it may hold.
    """

    graph: Weighted
    starts: np.ndarray
    labels: np.ndarray
    held: np.ndarray
    cap: int

    def wishes(self, turn: int, draw: str, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """The nodes of a block that want another label in this turn, and that label."""
        graph, begin, end = self.graph, self.starts[rows.start], self.starts[rows.stop]
        rng = generator(rows.start, "label_propagation", draw)
        turns = rng.integers(TURNS, size=rows.stop - rows.start, dtype=np.int8)
        edges = np.asarray(graph.edges[:, begin:end])
        chosen = turns[edges[0] - rows.start] == turn
        row, near = edges[0, chosen], self.labels[edges[1, chosen]]
        release(graph.edges)
        keys, votes = summed(
            (row - rows.start) * graph.num_nodes + near, None if graph.weights is None else graph.weights[begin:end][chosen]
        )
        node, label = np.divmod(keys, graph.num_nodes)
        node += rows.start
        own = label == self.labels[node]
        room = self.held[label] + graph.sizes[node] <= self.cap
        # A tie is no reason to move.
        score = np.where(own, votes + 1.0, np.where(room, votes + rng.random(votes.size), -1.0))
        first = np.flatnonzero(np.diff(node, prepend=-1))
        best = np.repeat(np.maximum.reduceat(score, first), np.diff(first, append=node.size)) if first.size else score
        wins = np.flatnonzero((score == best) & ~own & (score >= 0))
        wins = wins[np.diff(node[wins], prepend=-1) > 0]
        return node[wins], label[wins]

    def move(self, nodes: np.ndarray, targets: np.ndarray) -> int:
        """Give nodes their labels as long as there is room; how many moved."""
        order = np.argsort(targets, kind="stable")
        nodes, targets = nodes[order], targets[order]
        sizes = self.graph.sizes[nodes]
        first = np.flatnonzero(np.diff(targets, prepend=-1))
        before = np.cumsum(sizes) - sizes
        before -= np.repeat(before[first], np.diff(first, append=targets.size))
        fits = self.held[targets] + before + sizes <= self.cap
        nodes, targets, sizes = nodes[fits], targets[fits], sizes[fits]
        np.subtract.at(self.held, self.labels[nodes], sizes)
        np.add.at(self.held, targets, sizes)
        self.labels[nodes] = targets
        return int(nodes.size)


def degrees(graph: Weighted) -> np.ndarray:
    """``[N]`` edges of every node."""
    degree = np.zeros(graph.num_nodes, dtype=np.int64)
    for row, _ in in_blocks(graph.edges):  # rows are sorted: a block has a range of them
        degree[row[0] : row[-1] + 1] += np.bincount(row - row[0])
    return degree


def groups(starts: np.ndarray) -> Iterator[list[slice]]:
    """Blocks of nodes with about :data:`BLOCK` edges, :data:`TOGETHER` at a time."""
    cuts = np.unique(np.searchsorted(starts, np.arange(0, starts[-1] + BLOCK, BLOCK)))
    cuts = np.unique(np.concatenate([[0], cuts[cuts < starts.size - 1], [starts.size - 1]]))
    blocks = [slice(int(first), int(end)) for first, end in zip(cuts[:-1], cuts[1:], strict=True)]
    return (blocks[i : i + TOGETHER] for i in range(0, len(blocks), TOGETHER))


def contracted(graph: Weighted, clusters: np.ndarray) -> Weighted:
    """The graph of the clusters."""
    count, done = int(clusters.max()) + 1, 0
    chunks, waiting = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))], 0
    for row, col in in_blocks(graph.edges):
        low, high = clusters[row], clusters[col]
        forward = low < high
        weights = None if graph.weights is None else graph.weights[done : done + row.size][forward]
        done += row.size
        chunks.append(summed((low * count + high)[forward], weights))
        waiting += chunks[-1][0].size
        if waiting > max(chunks[0][0].size, 1 << 24):
            chunks, waiting = [merged(chunks)], 0
    keys, weights = merged(chunks)
    upper = sp.csr_matrix((weights, np.divmod(keys, count)), shape=(count, count))
    both = upper + upper.T
    rows = np.repeat(np.arange(count), np.diff(both.indptr))
    sizes = np.bincount(clusters, weights=graph.sizes, minlength=count).astype(np.int64)
    return Weighted(np.stack([rows, both.indices]), both.data, sizes)


def merged(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return summed(np.concatenate([keys for keys, _ in parts]), np.concatenate([weights for _, weights in parts]))


def summed(keys: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys, ascending, and the sum of each one's weights (None: one each), int32."""
    if weights is None:
        keys = np.sort(keys)
    else:
        order = np.argsort(keys, kind="stable")
        keys, weights = keys[order], weights[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    if not first.size:
        return keys, np.empty(0, dtype=np.int32)
    total = np.diff(first, append=keys.size) if weights is None else np.add.reduceat(weights, first)
    return keys[first], total.astype(np.int32)


def divided(graph: Weighted, num_parts: int, seed: int) -> np.ndarray:
    """``[N]`` METIS part of every cluster, balanced by the nodes in them."""
    if num_parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int64)
    if graph.edges.shape[1] >= 2**31:
        raise UserError("split.clusters_per_client: the clusters have more edges than METIS can count; use a smaller number")
    import pymetis

    starts = np.concatenate([[0], np.cumsum(degrees(graph))])
    lists = pymetis.CSRAdjacency(adj_starts=starts.astype(np.int32), adjacent=graph.edges[1].astype(np.int32))
    options, sizes = pymetis.Options(seed=derive_seed(seed, "partition", "metis") % 2**31), graph.sizes.astype(np.int32)
    _, parts = pymetis.part_graph(num_parts, adjacency=lists, vweights=sizes, eweights=graph.weights, options=options)
    return np.asarray(parts, dtype=np.int64)


@dataclass
class LabelPropagation(Split):
    """Clusters by label propagation (Raghavan et al., 2007) of bounded size (Meyerhenke et al., 2014), divided among clients by METIS.

    Label propagation reads the edges in blocks, so that a graph of a billion edges needs memory for its nodes only. The graph of its
    clusters is clustered again until it has few enough nodes. METIS cuts it into parts of about equally many original nodes.

    Attributes:
        sweeps: times that every node chooses a label, on every level.
        clusters_per_client: a cluster holds at most a client's fair share of nodes divided by this: more balance the clients better,
            fewer follow the communities better.
    """

    ranges: ClassVar[dict[str, Range]] = {"sweeps": at_least(1), "clusters_per_client": at_least(1)}

    sweeps: int = field(kw_only=True)
    clusters_per_client: int = field(kw_only=True)

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        cap = max(1, graph.num_nodes // (num_clients * self.clusters_per_client))
        level = Weighted(graph.edges, None, np.ones(graph.num_nodes, dtype=np.int64))
        cluster = np.arange(graph.num_nodes)
        for depth in range(10):
            clusters = label_propagation(level, cap, self.sweeps, derive_seed(seed, "partition", "label_propagation", str(depth)))
            cluster, before, level = clusters[cluster], level.num_nodes, contracted(level, clusters)
            if level.num_nodes <= ENOUGH * num_clients or level.num_nodes > 0.9 * before:
                break
        return divided(level, num_clients, seed)[cluster]
