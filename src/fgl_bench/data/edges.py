"""Canonical edges of graphs whose edges do not fit into memory: one pass to count, one to sort into ranges, a sort of each range."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from fgl_bench.data.storage import Disk, blocks, release

Pairs = Callable[[], Iterable[tuple[np.ndarray, np.ndarray] | np.ndarray]]
"""Yields blocks of raw (row, column) ids; called once for every pass."""

RANGE = 1 << 24
"""Directed edges that are sorted at a time."""


def canonical_edges_on_disk(pairs: Pairs, num_nodes: int, disk: Disk, name: str = "edges") -> np.ndarray:
    """What :func:`~fgl_bench.data.canonical.canonical_edges` makes, ``[2, E]`` int64, in files of ``disk``.

    Both directions of every raw pair go, as one integer each, to the segment of their row's range in a scratch file; segments are
    sorted in memory, one at a time. Disk: 8 bytes a raw directed edge for the scratch file, which is removed, and 16 an edge.
    """
    found = disk.find(name)
    if found is not None:
        return found
    fine = min(num_nodes, 1 << 16)
    width = -(-num_nodes // fine)
    counts = np.zeros(fine, dtype=np.int64)
    for row, col in pairs():
        apart = row != col
        for ends in (row[apart], col[apart]):
            counts += np.bincount(ends // width, minlength=fine)
    # Neighbouring rows share a segment as long as they fit together.
    segment = np.cumsum(counts) // RANGE
    segment = np.unique(segment, return_inverse=True)[1]
    sizes = np.bincount(segment, weights=counts).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def scatter(out: np.ndarray) -> None:
        cursor = starts[:-1].copy()
        for row, col in pairs():
            apart = row != col
            low, high = row[apart].astype(np.int64), col[apart].astype(np.int64)
            source, target = np.concatenate([low, high]), np.concatenate([high, low])
            place = segment[source // width]
            order = np.argsort(place, kind="stable")
            out[positions(place[order], cursor)] = (source * num_nodes + target)[order]
            release(out)

    keys = disk.array(f"{name}.keys", (int(starts[-1]),), np.int64, scatter)

    def distinct(number: int) -> np.ndarray:
        ordered = np.sort(keys[starts[number] : starts[number + 1]])
        release(keys)
        return ordered[np.diff(ordered, prepend=-1) > 0]

    kept = disk.array(f"{name}.counts", (sizes.size,), np.int64, lambda out: np.copyto(out, [distinct(i).size for i in range(sizes.size)]))

    def fill(out: np.ndarray) -> None:
        ends = np.cumsum(kept)
        for i, end in enumerate(ends):
            out[:, end - kept[i] : end] = np.divmod(distinct(i), max(num_nodes, 1))
            release(out)

    found = disk.array(name, (2, int(kept.sum())), np.int64, fill)
    for scratch in (f"{name}.keys", f"{name}.counts"):
        (disk.folder / f"{scratch}.npy").unlink(missing_ok=True)
    return found


def positions(group: np.ndarray, cursor: np.ndarray) -> np.ndarray:
    """Where entries, sorted by ``group``, go if each group's begin at its ``cursor``; moves the cursors on."""
    count = np.bincount(group, minlength=cursor.size)
    first = np.cumsum(count) - count
    place = cursor[group] + np.arange(group.size) - first[group]
    cursor += count
    return place


def in_blocks(edges: np.ndarray) -> Iterable[np.ndarray]:
    """``[2, E]`` as arrays ``[2, e]`` in memory."""
    for part in blocks(edges.shape[1], 4 * edges.itemsize * edges.shape[0]):
        yield np.array(edges[:, part])
        release(edges)
