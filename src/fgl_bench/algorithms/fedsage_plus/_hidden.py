"""Nodes of the clients' graphs that FedSage+ hides to train its generators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph


def hidden_nodes(client: ClientGraph, share: float, draw: np.random.Generator, mask: str = "val") -> np.ndarray:
    """Draw ``round(share |val|)`` of the validation nodes (or nodes of another mask), ``[n]`` bool."""
    hidden, nodes = np.zeros(client.num_nodes, dtype=bool), np.flatnonzero(getattr(client, mask))
    hidden[draw.permutation(nodes)[: round(share * nodes.size)]] = True
    return hidden


def impair(client: ClientGraph, hidden: np.ndarray, most: int) -> tuple[ClientGraph, np.ndarray, np.ndarray]:
    """Return the client without the edges of ``hidden`` nodes, the number of hidden neighbors ``[n]``, and the first ``[n, most]`` of them.

    Hidden nodes stay in the graph, isolated and without a loss, so that ids do not change.
    """
    row, column = client.edges
    stays, lost = ~hidden[row] & ~hidden[column], ~hidden[row] & hidden[column]
    order = np.lexsort((column[lost], row[lost]))
    source, target = row[lost][order], column[lost][order]
    count = np.bincount(source, minlength=client.num_nodes)
    rank = np.arange(source.size) - (np.cumsum(count) - count)[source]
    first = np.zeros((client.num_nodes, most), dtype=np.int64)
    first[source[rank < most], rank[rank < most]] = target[rank < most]
    return replace(client, edges=np.ascontiguousarray(client.edges[:, stays]), train=client.train & ~hidden), count, first


def padded(rows: Sequence[np.ndarray], nodes: int, fill: int) -> Tensor:
    """Pad rows of different lengths to one host tensor ``[k, nodes, ...]``."""
    out = np.full((len(rows), nodes, *rows[0].shape[1:]), fill, dtype=rows[0].dtype)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(out)
