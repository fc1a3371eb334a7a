"""Scores of predictions, computed on the device of the logits.

A score is summed over a client's validation or test nodes, so that division by their number gives the client's value and sums
over clients the node-weighted mean. Both scores of a model are undefined (NaN) where a logit of a validation or test node is not
finite: predictions and ranks from such logits mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

import numpy as np
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine import Bool, Float, Int
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.network import node_losses
from fgl_bench.engine.trips import Score


def _defects(logits: Float[Tensor, "k n Y"]) -> Float[Tensor, "k n"]:
    """NaN where a logit of a node is not finite, else 0."""
    # 0 times a number that is not finite is NaN; on a CPU a product with ones sums that in a quarter of the time of isfinite.
    nothing = logits * 0
    if logits.is_cuda:
        return nothing.sum(-1)
    return (nothing.reshape(-1, logits.shape[-1]) @ logits.new_ones(logits.shape[-1])).view(logits.shape[:2])


def diverged(logits: Float[Tensor, "k n Y"], batch: Batch) -> Bool[Tensor, "k 1"]:
    """Whether a logit of a model's validation or test nodes is not finite, ``[k, n, Y]`` to ``[k, 1]`` bool."""
    return _defects(logits).isnan().masked_fill_(batch.scored.unscored, False).any(1, keepdim=True)


def _defined(score: Score) -> Score:
    """``score``, NaN for models whose logits are not finite."""

    @wraps(score)
    def defined(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
        return score(logits, batch).masked_fill(diverged(logits, batch), torch.nan)

    return defined


def accuracy(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Correct predictions on validation and test nodes, ``[k, n, Y]`` to ``[k, 2]`` (whole numbers).

    With several labels a node, the class with the highest score is correct if it is among them (FedAAS's code).
    """
    answer = torch.argmax(logits, -1)
    if batch.labels.ndim == answer.ndim:
        correct = answer == batch.labels
    else:
        correct = batch.labels.gather(-1, answer[..., None])[..., 0] > 0
    # One product counts both kinds of nodes, and 0 times NaN makes both scores of a model NaN.
    counted = (_defects(logits) + correct).masked_fill_(batch.scored.unscored, 0)
    return torch.bmm(counted[:, None], batch.scored.each.to(counted.dtype))[:, 0]


@_defined
def auc(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Area under the ROC curve of class 1 against class 0, times the number of nodes, ``[k, n, 2]`` to ``[k, 2]``.

    Ties count half (ranks of equal scores are averaged). 0 where a client's nodes have one class only: see
    :func:`scored_nodes`.
    """
    return _each(lambda x, labels, mask: area(x[..., 1] - x[..., 0], labels == 1, mask)[0], logits, batch).to(logits.dtype)


def area(score: Float[Tensor, "... n"], positive: Bool[Tensor, "... n"], mask: Bool[Tensor, "... n"]) -> tuple[Tensor, Tensor]:
    """Areas under ROC curves ``[...]`` of the nodes in ``mask [..., n]``, and where they are defined (elsewhere they are 0).

    Ties count half: equal scores share the mean of their ranks.
    """
    ordered, order = torch.where(mask, score, torch.inf).sort(-1)
    # On a CPU looking up what is sorted takes half the time of looking up the scores.
    twice = torch.searchsorted(ordered, ordered) + torch.searchsorted(ordered, ordered, right=True) + 1
    ranks = (twice * (mask & positive).gather(-1, order)).sum(-1).double() / 2
    wins = (mask & positive).sum(-1).double()
    losses = (mask & ~positive).sum(-1).double()
    found = (ranks - wins * (wins + 1) / 2) / (wins * losses).clamp(min=1)
    return torch.where(wins * losses > 0, found, 0.0), wins * losses > 0


@_defined
def auc_ovr(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Mean over classes of the area under the ROC curve of one class's probability against the rest, ``[k, n, Y]`` to ``[k, 2]``.

    Classes without a positive or without a negative node are left out; 0 where all are (see :func:`scored_nodes`). With
    several labels a node, the mean over labels.
    """

    def mean(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        score = (x if labels.ndim == x.ndim else x.double().softmax(-1)).transpose(1, 2).contiguous()
        positive = _truth(x, labels).transpose(1, 2)
        areas, defined = area(score, positive, mask[:, None].expand_as(positive))
        return areas.sum(1) / defined.sum(1).clamp(min=1)

    return _each(mean, logits, batch).to(logits.dtype)


@_defined
def macro_f1(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Mean over classes of 2 TP / (2 TP + FP + FN), ``[k, n, Y]`` to ``[k, 2]``.

    The mean is over the classes that occur among a client's nodes or predictions (over all classes, if all occur, as on a
    server's test nodes). With several labels a node it is over all labels; every label with a logit above 0 is predicted.
    """

    def mean(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        hits, wrong = _confusion(x, labels, mask)
        occurs = hits + wrong > 0
        count = occurs.shape[1] if labels.ndim == x.ndim else occurs.sum(1).clamp(min=1)
        return (2 * hits / (2 * hits + wrong).clamp(min=1)).sum(1) / count

    return _each(mean, logits, batch).to(logits.dtype)


@_defined
def micro_f1(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """2 TP / (2 TP + FP + FN) with counts summed over classes, ``[k, n, Y]`` to ``[k, 2]``; with one label a node, the accuracy."""

    def pooled(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        hits, wrong = (counts.sum(1) for counts in _confusion(x, labels, mask))
        return 2 * hits / (2 * hits + wrong).clamp(min=1)

    return _each(pooled, logits, batch).to(logits.dtype)


@_defined
def loss(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Cross-entropy (with several labels a node, the mean over labels), ``[k, n, Y]`` to ``[k, 2]``.

    NaN also where finite logits are so large that their loss is not.
    """
    each = node_losses(logits.flatten(0, 1), batch.labels.flatten(0, 1)).view(logits.shape[:2])
    sums = torch.stack([torch.where(mask, each, 0).sum(1) for mask in (batch.val, batch.test)], 1).to(logits.dtype)
    return sums.masked_fill(~sums.isfinite(), torch.nan)


def _each(value: Callable[[Tensor, Tensor, Tensor], Tensor], logits: Float[Tensor, "k n Y"], batch: Batch) -> Tensor:
    """``value(logits, labels, mask)`` ``[k]`` times the number of nodes, for validation and test nodes, ``[k, 2]``."""
    found = [value(*_those(mask, logits, batch.labels)) * mask.sum(1) for mask in (batch.val, batch.test)]
    return torch.stack(found, 1)


def _those(mask: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits ``[k, m, Y]``, labels and mask of the nodes in ``mask [k, n]`` side by side; of all nodes on a GPU, which would wait for m."""
    if mask.device.type != "cpu":
        return logits, labels, mask
    counts, (replica, node) = mask.sum(1, keepdim=True), mask.nonzero(as_tuple=True)
    there = torch.arange(int(counts.max())) < counts
    index = torch.zeros_like(there, dtype=torch.int64)
    index[there] = replica * mask.shape[1] + node
    picked = [x.flatten(0, 1).index_select(0, index.flatten()).unflatten(0, index.shape) for x in (logits, labels)]
    return picked[0], picked[1], there


def _truth(logits: Float[Tensor, "k n Y"], labels: Tensor) -> Bool[Tensor, "k n Y"]:
    """``[k, n, Y]`` bool."""
    if labels.ndim == logits.ndim:
        return labels > 0
    return labels[..., None] == torch.arange(logits.shape[-1], device=logits.device)


def _confusion(logits: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Per class ``[k, Y]``: true positives; false positives and false negatives together."""
    truth = _truth(logits, labels) & mask[..., None]
    if labels.ndim == logits.ndim:
        answer = (logits > 0) & mask[..., None]
    else:
        answer = torch.zeros_like(truth).scatter(-1, logits.argmax(-1, keepdim=True), mask[..., None])
    return (truth & answer).sum(1).double(), (truth ^ answer).sum(1).double()


METRICS = {"accuracy": accuracy, "auc": auc, "macro_f1": macro_f1, "micro_f1": micro_f1, "auc_ovr": auc_ovr, "loss": loss}


def scores(names: Sequence[str]) -> Score:
    """The metrics ``names`` side by side, ``[k, n, Y]`` to ``[k, 2 M]``; the first is what models are selected by."""
    chosen = [METRICS[name] for name in names]
    if len(chosen) == 1:
        return chosen[0]
    return lambda logits, batch: torch.cat([score(logits, batch) for score in chosen], 1)


def scored_nodes(clients: Sequence[ClientGraph], metric: str) -> Int[np.ndarray, "C 2"]:
    """Validation and test nodes that count, ``[C, 2]``: with an area under a curve, none where a client's have one class only."""
    sizes = np.zeros((len(clients), 2), dtype=np.int64)
    for i, client in enumerate(clients):
        for j, mask in enumerate((client.val, client.test)):
            defined = not metric.startswith("auc") or _varied(client.labels[mask])
            sizes[i, j] = mask.sum() if defined else 0
    return sizes


def _varied(labels: np.ndarray) -> bool:
    """Whether some class has both positive and negative nodes."""
    return len(labels) > 0 and bool((labels != labels[0]).any())
