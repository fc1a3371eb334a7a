"""Train, validation and test masks, stratified by class."""

from __future__ import annotations

import numpy as np

from fgl_bench.data.graph import Graph
from fgl_bench.errors import UserError
from fgl_bench.utils.patience import say_once

SLACK = 1e-9
"""Added before rounding down, so that 0.29 * 100 counts as 29."""


GIVEN = ("train_mask", "val_mask", "test_mask")

Masks = tuple[np.ndarray, np.ndarray, np.ndarray]


def given_masks(graph: Graph, seed: int) -> Masks:
    """The masks ``[N]`` that the graph came with; of several columns, column ``seed`` modulo their number.

    Raises:
        UserError: a mask is absent, two masks share a node, or the training or the validation mask has no labeled node.
    """
    absent = [name for name in GIVEN if name not in graph.masks]
    if absent:
        raise UserError(f"split.masks=given: dataset={graph.name} has no {' and no '.join(absent)}; it needs {', '.join(GIVEN)}, bool [N]")
    columns = {mask.shape[1] for mask in graph.masks.values() if mask.ndim > 1}
    if len(columns) > 1:
        raise UserError(f"split.masks=given: masks of dataset={graph.name} have {' and '.join(map(str, sorted(columns)))} columns")
    masks = np.stack([mask if mask.ndim == 1 else mask[:, seed % mask.shape[1]] for mask in (graph.masks[name] for name in GIVEN)])
    if shared := int((masks.sum(axis=0) > 1).sum()):
        raise UserError(f"split.masks=given: {shared} nodes of dataset={graph.name} are in two masks; masks must not share nodes")
    unlabeled = masks.any(axis=0) & (graph.strata < 0)
    if unlabeled.any():
        say_once(f"note: split.masks=given: {unlabeled.sum()} nodes in the masks of dataset={graph.name} have no label and are left out")
    train, val, test = masks & ~unlabeled
    for name, mask in zip(GIVEN, (train, val, test), strict=True):
        if not mask.any():
            raise UserError(f"split.masks=given: {name} of dataset={graph.name} has no labeled node")
    return train, val, test


def random_masks(labels: np.ndarray, ratios: tuple[float, float, float], rng: np.random.Generator) -> Masks:
    """As :func:`stratified_masks`, with the labeled nodes shuffled all together instead of class by class."""
    return stratified_masks(np.where(labels >= 0, 0, -1), ratios, rng)


def stratified_masks(labels: np.ndarray, ratios: tuple[float, float, float], rng: np.random.Generator) -> Masks:
    """Disjoint boolean masks over some nodes: a client's, or those of all clients that share nodes.

    Of a class with n nodes here, in random order, the first ``floor(a n)`` train, those up to ``floor((a + b) n)``
    validate and those up to ``floor((a + b + c) n)`` test. This is OpenFGL's rule, from which the papers' numbers
    descend: rounding down means that with a = 0.2 a class of four nodes or fewer gets *no* training node, and the
    training share comes out a little under nominal (18.6 % on Cora, METIS, 20 clients). Nodes labeled -1 stay out.

    Args:
        labels: ``[n]`` int64.
        ratios: a, b, c; checked by the caller.
        rng: the stream of these masks.

    Returns:
        train, val, test: ``[n]`` bool each.
    """
    shuffled = rng.permutation(labels.size)
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    ordered = labels[order]
    _, first, group, count = np.unique(ordered, return_index=True, return_inverse=True, return_counts=True)
    rank, size = np.arange(labels.size) - first[group], count[group]
    ends = [np.floor(share * size + SLACK) for share in np.cumsum(ratios)]
    labeled = ordered >= 0
    masks = np.zeros((3, labels.size), dtype=bool)
    masks[0, order] = labeled & (rank < ends[0])
    masks[1, order] = labeled & (rank >= ends[0]) & (rank < ends[1])
    masks[2, order] = labeled & (rank >= ends[1]) & (rank < ends[2])
    return masks[0], masks[1], masks[2]


def held_out_masks(
    labels: np.ndarray,
    ratios: tuple[float, float, float],
    rng: np.random.Generator,
    reserve: np.ndarray,
    train_per_class: int | None = None,
) -> Masks:
    """Disjoint boolean masks that never test a node of ``reserve`` and validate on such nodes only.

    Of a class with n nodes here, ``floor(c n)`` nodes outside the reserve test, or all of those if they are fewer. ``floor(a n)`` of the
    other nodes, or ``train_per_class`` of them, train. The rest of the reserve validates; b is not used.

    Args:
        labels: ``[n]`` int64; nodes labeled -1 stay out.
        ratios: a, b, c.
        rng: the stream of these masks.
        reserve: ``[n]`` bool.

    Returns:
        train, val, test: ``[n]`` bool each.
    """
    labeled = labels >= 0
    size = np.bincount(labels[labeled], minlength=int(labels.max(initial=0)) + 1)
    test = first_of_class(np.where(reserve, -1, labels), np.floor(ratios[2] * size + SLACK), rng)
    counts = np.floor(ratios[0] * size + SLACK) if train_per_class is None else np.full(size.shape, train_per_class)
    train = first_of_class(np.where(test, -1, labels), counts, rng)
    return train, reserve & labeled & ~train, test


def first_of_class(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """``[n]`` bool: the first ``counts[y]`` nodes of every class y in random order; none of those labeled -1."""
    chosen = np.zeros(labels.size, dtype=bool)
    order = rng.permutation(labels.size)
    for y, count in enumerate(counts):
        nodes = order[labels[order] == y]
        chosen[nodes[: int(count)]] = True
    return chosen
