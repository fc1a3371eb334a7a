"""Graphs that do not fit into memory: canonical edges and clients in mapped files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fgl_bench.data.graph import ClientGraph, Graph
from fgl_bench.data.storage import Disk, blocks, release
from fgl_bench.errors import UserError

Pairs = Callable[[], Iterable[tuple[np.ndarray, np.ndarray] | np.ndarray]]
"""Yields blocks of raw (row, column) ids; called once for every pass."""

RANGE = 1 << 24
"""Directed edges that are sorted at a time."""


def canonical_edges_on_disk(pairs: Pairs, num_nodes: int, disk: Disk, name: str = "edges") -> np.ndarray:
    """Canonical edges ``[2, E]`` int64, as :func:`~fgl_bench.data.canonical.canonical_edges` returns, in files of ``disk``.

    One pass counts, one sorts into ranges of rows; then each range is sorted.
    Both directions of every raw pair go, as one integer each, to the segment of their row's range in a scratch file; segments are
    sorted in memory, one at a time. Disk: 8 bytes a raw directed edge for the scratch file, which is removed, and 16 an edge.
    """
    stored = disk.find(name)
    if stored is not None:
        return stored
    fine = min(num_nodes, 1 << 16)
    width = -(-num_nodes // fine)
    counts = np.zeros(fine, dtype=np.int64)
    for row, col in pairs():
        no_loop = row != col
        for ends in (row[no_loop], col[no_loop]):
            counts += np.bincount(ends // width, minlength=fine)
    # Neighboring rows share a segment as long as they fit together.
    segment = np.cumsum(counts) // RANGE
    segment = np.unique(segment, return_inverse=True)[1]
    sizes = np.bincount(segment, weights=counts).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def scatter(out: np.ndarray) -> None:
        cursor = starts[:-1].copy()
        for row, col in pairs():
            no_loop = row != col
            low, high = row[no_loop].astype(np.int64), col[no_loop].astype(np.int64)
            source, target = np.concatenate([low, high]), np.concatenate([high, low])
            block = segment[source // width]
            order = np.argsort(block, kind="stable")
            out[positions(block[order], cursor)] = (source * num_nodes + target)[order]
            release(out)

    keys = disk.array(f"{name}.keys", (int(starts[-1]),), np.int64, scatter)

    def distinct(number: int) -> np.ndarray:
        ordered = np.sort(keys[starts[number] : starts[number + 1]])
        release(keys)
        return ordered[np.diff(ordered, prepend=-1) > 0]

    counts = disk.array(f"{name}.counts", (sizes.size,), np.int64, lambda out: np.copyto(out, [distinct(i).size for i in range(len(out))]))

    def fill(out: np.ndarray) -> None:
        ends = np.cumsum(counts)
        for i, end in enumerate(ends):
            out[:, end - counts[i] : end] = np.divmod(distinct(i), max(num_nodes, 1))
            release(out)

    stored = disk.array(name, (2, int(counts.sum())), np.int64, fill)
    for scratch in (f"{name}.keys", f"{name}.counts"):
        (disk.folder / f"{scratch}.npy").unlink(missing_ok=True)
    return stored


def positions(group: np.ndarray, cursor: np.ndarray) -> np.ndarray:
    """Where entries, sorted by ``group``, go if each group's begin at its ``cursor``; moves the cursors on."""
    count = np.bincount(group, minlength=cursor.size)
    first = np.cumsum(count) - count
    out = cursor[group] + np.arange(group.size) - first[group]
    cursor += count
    return out


def in_blocks(edges: np.ndarray) -> Iterable[np.ndarray]:
    """``[2, E]`` as arrays ``[2, e]`` in memory."""
    for part in blocks(edges.shape[1], 4 * edges.itemsize * edges.shape[0]):
        yield np.array(edges[:, part])
        release(edges)


def induce_on_disk(graph: Graph, nodes: Sequence[np.ndarray], disk: Disk) -> tuple[list[ClientGraph], np.ndarray]:
    """The result of :func:`~fgl_bench.data.federation.induce`, as views of mapped files.

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
            slot = positions(owner[order], cursor)
            out[0, slot], out[1, slot] = local[row[order]], local[col[order]]
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
