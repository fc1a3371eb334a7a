"""Edges and random non-edges of all replicas, for decoders that predict edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.linear import taken
from fgl_bench.engine.random_numbers import uniform


class UndirectedEdges(NamedTuple):
    """The undirected edges of k replicas, each once.

    Attributes:
        ends: ``[k, m, 2]`` int64 nodes u < v, in order; n in padding.
        count: ``[k]`` int64 edges.
        nodes: ``[k]`` int64, number of real nodes.
        there: ``[k, n]`` int64, the real nodes in order, then padding.
    """

    ends: Tensor
    count: Tensor  # type: ignore[assignment]  # it hides tuple.count
    nodes: Tensor
    there: Tensor

    @classmethod
    def of(cls, batch: Batch) -> UndirectedEdges:
        each = [client.edges[:, client.edges[0] < client.edges[1]] for client in batch.clients]
        ends = np.full((batch.size, max(1, *(edges.shape[1] for edges in each)), 2), batch.nodes, dtype=np.int64)
        for row, edges in zip(ends, each, strict=True):
            row[: edges.shape[1]] = edges.T
        count = torch.tensor([edges.shape[1] for edges in each], device=batch.device)
        there = (~batch.valid).to(torch.uint8).argsort(dim=1, stable=True)
        return cls(torch.from_numpy(ends).to(batch.device), count, batch.valid.sum(1), there)

    def select(self, rows: Tensor) -> UndirectedEdges:
        return UndirectedEdges(*(part[rows] for part in self))


def drawn_pairs(edges: UndirectedEdges, most: int, key: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw edges and the same number of non-edges, at most ``most`` of each; a client with more edges draws with replacement.

    Non-edges are pairs of different real nodes; the few pairs that are edges are dropped, not redrawn.

    Args:
        key: ``[k]`` int64; draws depend only on the key and the replica's own edges.

    Returns:
        Pairs ``[k, m, 2]`` and their mask ``[k, m]``, of edges and of non-edges.
    """
    (k, longest, _), nodes = edges.ends.shape, edges.nodes[:, None, None]
    size = min(longest, most)
    draws = uniform(key, size, 3)
    place = torch.arange(size, device=key.device).expand(k, -1)
    count = edges.count[:, None]
    chosen = torch.where(count > most, (draws[..., 0] * count).long(), place)
    real = place < count
    positive = torch.take_along_dim(edges.ends, chosen[..., None], 1)
    drawn = (draws[..., 1:] * nodes).long().sort(-1).values
    negative = edges.there.gather(1, drawn.flatten(1)).view_as(drawn)
    return positive, real, negative, real & (negative[..., 0] != negative[..., 1]) & ~_among(edges.ends, negative)


def _among(ends: Tensor, pairs: Tensor) -> Tensor:
    """Return True for ``pairs [k, m, 2]`` that occur in the sorted ``ends [k, e, 2]``."""
    known, wanted = (x[..., 0] * 2**31 + x[..., 1] for x in (ends, pairs))
    place = torch.searchsorted(known, wanted).clamp(max=known.shape[1] - 1)
    return known.gather(1, place) == wanted


def reconstruction(z: Tensor, edges: UndirectedEdges, most: int, key: Tensor) -> Tensor:
    """Return the mean cross-entropy of ``sigmoid(z_u . z_v)`` over edges plus the mean over drawn non-edges, ``[k]``.

    0 for a replica without edges.
    """
    k, n, _ = z.shape
    positive, real, negative, unreal = drawn_pairs(edges, most, key)
    start = torch.arange(k, device=z.device)[:, None] * n
    flat, losses = z.flatten(0, 1), []
    for pairs, counts, sign in ((positive, real, -1.0), (negative, unreal, 1.0)):
        u, v = ((pairs[..., end].clamp(max=n - 1) + start).flatten() for end in (0, 1))
        inner = (taken(flat, u) * taken(flat, v)).sum(-1).view(k, -1)
        counts = counts.to(z.dtype)
        losses.append((F.softplus(sign * inner) * counts).sum(1) / counts.sum(1).clamp(min=1))
    return losses[0] + losses[1]
