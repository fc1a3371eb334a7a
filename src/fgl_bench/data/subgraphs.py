"""Clients of a graph on disk: their rows and edges in files of their own, in one pass over the graph's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgl_bench.data.edges import in_blocks, positions
from fgl_bench.data.graph import ClientGraph, Graph
from fgl_bench.data.storage import Disk, blocks, release
from fgl_bench.errors import UserError


def induce_on_disk(graph: Graph, nodes: Sequence[np.ndarray], disk: Disk) -> tuple[list[ClientGraph], np.ndarray]:
    """What :func:`~fgl_bench.data.federation.induce` makes, as views of mapped files.

    Features and edges are read in order, a block at a time, and every row and edge goes where its client's lie. In memory are two
    numbers a node and a block.

    Raises:
        UserError: clients overlap.
    """
    sizes = np.array([ids.size for ids in nodes])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    slot_node = np.concatenate(nodes)
    # One more client holds the nodes that nobody has.
    part, local = np.full(graph.num_nodes, sizes.size, dtype=np.int32), np.zeros(graph.num_nodes, dtype=np.int64)
    part[slot_node] = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
    local[slot_node] = np.arange(slot_node.size) - np.repeat(starts[:-1], sizes)
    if (part < sizes.size).sum() != slot_node.size:
        raise UserError("out_of_core=true: clients that share nodes are kept in memory only; take another split or set out_of_core=false")

    def move_rows(out: np.ndarray) -> None:
        assert isinstance(graph.features, np.ndarray)
        for rows in blocks(graph.num_nodes, graph.num_features * graph.features.itemsize):
            order = np.argsort(part[rows], kind="stable")
            order = order[: np.searchsorted(part[rows][order], sizes.size)]
            taken = np.arange(rows.start, rows.stop)[order]
            out[starts[part[taken]] + local[taken]] = graph.features[rows][order]
            release(graph.features)
            release(out)

    def count(out: np.ndarray) -> None:
        """Edges inside every client, then those between clients."""
        out[:] = 0
        for row, col in in_blocks(graph.edges):
            source, target = part[row], part[col]
            out[:-1] += np.bincount(source[source == target], minlength=sizes.size + 1)[:-1]
            out[-1] += ((source != target) & (np.maximum(source, target) < sizes.size)).sum()

    def move_edges(out: np.ndarray) -> None:
        cursor = np.concatenate([[0], np.cumsum(counts[:-1])])
        for row, col in in_blocks(graph.edges):
            owner = part[row]
            inside = (owner == part[col]) & (owner < sizes.size)
            row, col, owner = row[inside], col[inside], owner[inside]
            order = np.argsort(owner, kind="stable")
            place = positions(owner[order], cursor)
            out[0, place], out[1, place] = local[row[order]], local[col[order]]
            release(out)

    def move_crossing(out: np.ndarray) -> None:
        done = 0
        for edges in in_blocks(graph.edges):
            source, target = part[edges]
            crossing = edges[:, (source != target) & (np.maximum(source, target) < sizes.size)]
            out[:, done : done + crossing.shape[1]] = crossing
            done += crossing.shape[1]
            release(out)

    counts = disk.array("counts", (sizes.size + 1,), np.int64, count)
    features = disk.array("features", (slot_node.size, graph.num_features), graph.features.dtype, move_rows)
    owned = graph.labels[slot_node]
    labels = disk.array("labels", owned.shape, owned.dtype, lambda out: np.copyto(out, owned))
    edges = disk.array("edges", (2, int(counts[:-1].sum())), np.int64, move_edges)
    crossing = disk.array("crossing", (2, int(counts[-1])), np.int64, move_crossing)

    bounds = np.concatenate([[0], np.cumsum(counts[:-1])])
    clients = []
    for i, ids in enumerate(nodes):
        held, empty = slice(starts[i], starts[i + 1]), np.zeros(ids.size, dtype=bool)
        clients.append(ClientGraph(ids, features[held], edges[:, bounds[i] : bounds[i + 1]], labels[held], empty, empty, empty))
    return clients, crossing
