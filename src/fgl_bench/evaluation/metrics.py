"""Scores of predictions, computed where the logits are.

A score is summed over a client's validation or test nodes, so that division by their number gives the client's value and sums
over clients the node-weighted mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch


def accuracy(logits: Tensor, batch: Batch) -> Tensor:
    """Correct predictions on validation and test nodes, ``[k, n, Y]`` to ``[k, 2]`` (whole numbers)."""
    correct = torch.argmax(logits, -1) == batch.labels
    return torch.stack([(correct & mask).sum(1) for mask in (batch.val, batch.test)], 1).to(logits.dtype)


def auc(logits: Tensor, batch: Batch) -> Tensor:
    """Area under the ROC curve of class 1 against class 0, times the number of nodes, ``[k, n, 2]`` to ``[k, 2]``.

    Ties count half (ranks of equal scores are averaged). 0 where a client's nodes have one class only: see
    :func:`scored_nodes`.
    """
    score, positive = logits[..., 1] - logits[..., 0], batch.labels == 1
    results = []
    for mask in (batch.val, batch.test):
        masked = torch.where(mask, score, torch.inf)
        ordered = masked.sort(1).values
        below, upto = torch.searchsorted(ordered, masked), torch.searchsorted(ordered, masked, right=True)
        rank = (below + upto + 1).double() / 2
        wins = (mask & positive).sum(1).double()
        losses = (mask & ~positive).sum(1).double()
        area = ((rank * (mask & positive)).sum(1) - wins * (wins + 1) / 2) / (wins * losses).clamp(min=1)
        results.append(torch.where(wins * losses > 0, area * (wins + losses), 0.0))
    return torch.stack(results, 1).to(logits.dtype)


METRICS = {"accuracy": accuracy, "auc": auc}


def scored_nodes(clients: Sequence[ClientGraph], metric: str) -> np.ndarray:
    """Validation and test nodes that count, ``[C, 2]``: with ``auc``, none where a client's have one class only."""
    sizes = np.zeros((len(clients), 2), dtype=np.int64)
    for i, client in enumerate(clients):
        for j, mask in enumerate((client.val, client.test)):
            defined = metric != "auc" or np.unique(client.labels[mask]).size == 2
            sizes[i, j] = mask.sum() if defined else 0
    return sizes
