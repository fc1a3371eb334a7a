"""Scores of predictions, computed on the device of the logits.

A score is summed over a client's validation or test nodes. Divided by the number of nodes it is the client's value; summed over
clients it gives the node-weighted mean. Both scores of a model are undefined (NaN) if a logit of a validation or test node is not
finite, since predictions and ranks from such logits are meaningless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fgl_bench.data.federation import Federation
from fgl_bench.data.graph import ClientGraph
from fgl_bench.data.pooling import Pooled, PooledServerFederation
from fgl_bench.engine import Bool, Float, Int
from fgl_bench.engine.batch import Batch, ScoredNodes
from fgl_bench.engine.network import node_losses
from fgl_bench.engine.trips import Score


def _defects(logits: Float[Tensor, "k n Y"]) -> Float[Tensor, "k n"]:
    """Return NaN for nodes with a logit that is not finite, else 0."""
    # 0 times a number that is not finite is NaN. On a CPU, summing by a product with ones takes a quarter of the time of isfinite.
    nothing = logits * 0
    if logits.is_cuda:
        return nothing.sum(-1)
    return (nothing.reshape(-1, logits.shape[-1]) @ logits.new_ones(logits.shape[-1])).view(logits.shape[:2])


def diverged(logits: Float[Tensor, "k n Y"], batch: Batch) -> Bool[Tensor, "k 1"]:
    """Return True for models with a logit of a scored node that is not finite, ``[k, n, Y]`` to ``[k, 1]`` bool."""
    return _defects(logits).isnan().masked_fill_(batch.scored.unscored, False).any(1, keepdim=True)


def _defined(score: Score) -> Score:
    """Return ``score`` with NaN for models whose logits are not finite."""

    @wraps(score)
    def defined(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
        return score(logits, batch).masked_fill(diverged(logits, batch), torch.nan)

    return defined


def accuracy(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Correct predictions on validation and test nodes, ``[k, n, Y]`` to ``[k, 2]`` (whole numbers).

    With several labels per node, the class with the highest score is correct if it is one of them (FedAAS's code).
    """
    answer = torch.argmax(logits, -1)
    if batch.labels.ndim == answer.ndim:
        correct = answer == batch.labels
    else:
        correct = batch.labels.gather(-1, answer[..., None])[..., 0] > 0
    # One product counts both kinds of nodes; 0 times NaN makes both scores of a model NaN.
    counted = (_defects(logits) + correct).masked_fill_(batch.scored.unscored, 0)
    return torch.bmm(counted[:, None], batch.scored.each.to(counted.dtype))[:, 0]


@_defined
def auc(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Area under the ROC curve of class 1 against class 0, times the number of nodes, ``[k, n, 2]`` to ``[k, 2]``.

    Ties count half (ranks of equal scores are averaged). 0 if all of a client's nodes have the same class: see
    :func:`scored_nodes`.
    """
    return _each(lambda x, labels, mask: area(x[..., 1] - x[..., 0], labels == 1, mask)[0], logits, batch).to(logits.dtype)


def area(score: Float[Tensor, "... n"], positive: Bool[Tensor, "... n"], mask: Bool[Tensor, "... n"]) -> tuple[Tensor, Tensor]:
    """Return areas under ROC curves ``[...]`` of the nodes in ``mask [..., n]`` (0 if undefined), and where they are defined.

    Ties count half: equal scores share the mean of their ranks.
    """
    ordered, order = torch.where(mask, score, torch.inf).sort(-1)
    # On a CPU, looking up sorted values takes half the time of looking up the scores.
    twice = torch.searchsorted(ordered, ordered) + torch.searchsorted(ordered, ordered, right=True) + 1
    ranks = (twice * (mask & positive).gather(-1, order)).sum(-1).double() / 2
    wins = (mask & positive).sum(-1).double()
    losses = (mask & ~positive).sum(-1).double()
    areas = (ranks - wins * (wins + 1) / 2) / (wins * losses).clamp(min=1)
    return torch.where(wins * losses > 0, areas, 0.0), wins * losses > 0


@_defined
def auc_ovr(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Mean one-vs-rest area under the ROC curve over classes, ``[k, n, Y]`` to ``[k, 2]``.

    Classes without a positive or without a negative node are left out; 0 if none is left (see :func:`scored_nodes`). With
    several labels per node, the mean is over labels.
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

    The mean is over the classes that occur among a client's nodes or predictions (usually all classes on a server's test nodes).
    With several labels per node it is over all labels, and every label with a logit above 0 is predicted.
    """

    def mean(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        hits, wrong = _confusion(x, labels, mask)
        occurs = hits + wrong > 0
        count = occurs.shape[1] if labels.ndim == x.ndim else occurs.sum(1).clamp(min=1)
        return (2 * hits / (2 * hits + wrong).clamp(min=1)).sum(1) / count

    return _each(mean, logits, batch).to(logits.dtype)


@_defined
def micro_f1(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """2 TP / (2 TP + FP + FN) with counts summed over classes, ``[k, n, Y]`` to ``[k, 2]``; with one label per node, the accuracy."""

    def pooled(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        hits, wrong = (counts.sum(1) for counts in _confusion(x, labels, mask))
        return 2 * hits / (2 * hits + wrong).clamp(min=1)

    return _each(pooled, logits, batch).to(logits.dtype)


@_defined
def loss(logits: Float[Tensor, "k n Y"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Cross-entropy (with several labels per node, the mean over labels), ``[k, n, Y]`` to ``[k, 2]``.

    Also NaN if finite logits give a loss that is not finite.
    """
    each = node_losses(logits.flatten(0, 1), batch.labels.flatten(0, 1)).view(logits.shape[:2])
    sums = torch.stack([torch.where(mask, each, 0).sum(1) for mask in (batch.val, batch.test)], 1).to(logits.dtype)
    return sums.masked_fill(~sums.isfinite(), torch.nan)


def _each(value: Callable[[Tensor, Tensor, Tensor], Tensor], logits: Float[Tensor, "k n Y"], batch: Batch) -> Tensor:
    """Return ``value(logits, labels, mask) [k]`` times the number of nodes, for validation and test nodes, ``[k, 2]``."""
    summed = [value(*_select(mask, logits, batch.labels)) * mask.sum(1) for mask in (batch.val, batch.test)]
    return torch.stack(summed, 1)


def _select(mask: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits ``[k, m, Y]``, labels and mask of the nodes in ``mask [k, n]``; on a GPU of all nodes, to avoid a synchronization."""
    if mask.device.type != "cpu":
        return logits, labels, mask
    counts, (replica, node) = mask.sum(1, keepdim=True), mask.nonzero(as_tuple=True)
    real = torch.arange(int(counts.max())) < counts  # False in padding
    index = torch.zeros_like(real, dtype=torch.int64)
    index[real] = replica * mask.shape[1] + node
    picked = [x.flatten(0, 1).index_select(0, index.flatten()).unflatten(0, index.shape) for x in (logits, labels)]
    return picked[0], picked[1], real


def _truth(logits: Float[Tensor, "k n Y"], labels: Tensor) -> Bool[Tensor, "k n Y"]:
    """Return the true labels as ``[k, n, Y]`` bool."""
    if labels.ndim == logits.ndim:
        return labels > 0
    return labels[..., None] == torch.arange(logits.shape[-1], device=logits.device)


def _confusion(logits: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return true positives, and the sum of false positives and false negatives, per class ``[k, Y]``."""
    truth = _truth(logits, labels) & mask[..., None]
    if labels.ndim == logits.ndim:
        answer = (logits > 0) & mask[..., None]
    else:
        answer = torch.zeros_like(truth).scatter(-1, logits.argmax(-1, keepdim=True), mask[..., None])
    return (truth & answer).sum(1).double(), (truth ^ answer).sum(1).double()


@_defined
def ap(logits: Float[Tensor, "k n 2"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Average precision of class 1, times the number of examples, ``[k, n, 2]`` to ``[k, 2]``, as in scikit-learn."""

    def precision(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        score, positive = _ranking(x, labels, mask)
        ordered, order = score.sort(-1, descending=True)
        hits = positive.gather(-1, order).double()
        last = torch.searchsorted(-ordered, -ordered, right=True)  # examples with this score or a higher one
        found = hits.cumsum(-1).gather(-1, last - 1)
        return (hits * found / last).sum(-1) / hits.sum(-1).clamp(min=1)

    return _each(precision, logits, batch).to(logits.dtype)


@_defined
def mrr(logits: Float[Tensor, "k n 2"], batch: Batch) -> Float[Tensor, "k 2"]:
    """Mean over the positives of 1 / rank among the client's negatives, times the number of examples, ``[k, n, 2]`` to ``[k, 2]``.

    A positive that ties with t negatives has the mean of its highest and lowest rank, as in OGB.
    """

    def reciprocal(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        above, tied, positive = _against_negatives(x, labels, mask)
        return (positive / (1 + above + tied / 2)).sum(-1) / positive.sum(-1).clamp(min=1)

    return _each(reciprocal, logits, batch).to(logits.dtype)


def hits(count: int) -> Score:
    """Return Hits@K, the share of positives with a higher score than the K-th best of the client's negatives, as in OGB.

    It is 1 for a client with fewer than K negatives. The score is the number of examples times this share, ``[k, n, 2]`` to ``[k, 2]``.
    """

    def share(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        above, tied, positive = _against_negatives(x, labels, mask)
        return (positive * (above + tied < count)).sum(-1) / positive.sum(-1).clamp(min=1)

    return _defined(lambda logits, batch: _each(share, logits, batch).to(logits.dtype))


def _ranking(x: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores ``[k, n]`` (-inf outside ``mask``) and the positives of ``mask``, ``[k, n]`` bool."""
    return torch.where(mask, x[..., 1] - x[..., 0], -torch.inf), mask & (labels == 1)


def _against_negatives(x: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the negatives above each example, those with its score, and 1 for positives, all ``[k, n]`` float64."""
    score, positive = _ranking(x, labels, mask)
    negatives = torch.where(positive, -torch.inf, score).sort(-1).values
    low, high = (torch.searchsorted(negatives, score, right=right) for right in (False, True))
    return (score.shape[-1] - high).double(), (high - low).double(), positive.double()


METRICS = {"accuracy": accuracy, "auc": auc, "macro_f1": macro_f1, "micro_f1": micro_f1, "auc_ovr": auc_ovr, "loss": loss}
METRICS |= {"ap": ap, "mrr": mrr, **{f"hits@{count}": hits(count) for count in (1, 3, 10, 20, 50, 100)}}
OF_TWO_CLASSES = ("auc", "ap", "mrr", "hits@1", "hits@3", "hits@10", "hits@20", "hits@50", "hits@100")
"""Metrics that rank examples of class 1 against those of class 0."""


def own_metric(name: str) -> Score:
    """Return the score of a user's function ``module.function``, of the logits ``[n, Y]`` and labels ``[n]`` of one client's nodes."""
    module, _, function = name.rpartition(".")
    value = getattr(import_module(module), function)

    def each(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        rows = zip(logits, labels, mask, strict=True)
        return torch.tensor([float(value(x[own], y[own])) if own.any() else 0.0 for x, y, own in rows], device=logits.device)

    return _defined(lambda logits, batch: _each(each, logits, batch).to(logits.dtype))


def scores(names: Sequence[str]) -> Score:
    """Return a score of all metrics in ``names``, ``[k, n, Y]`` to ``[k, 2 M]``; models are selected by the first metric."""
    chosen = [METRICS[name] if name in METRICS else own_metric(name) for name in names]
    if len(chosen) == 1:
        return chosen[0]
    return lambda logits, batch: torch.cat([score(logits, batch) for score in chosen], 1)


def scored_nodes(clients: Sequence[ClientGraph], metric: str) -> Int[np.ndarray, "C 2"]:
    """Return the numbers of scored validation and test nodes, ``[C, 2]``; for AUC, 0 if all of a client's nodes have the same class."""
    sizes = np.zeros((len(clients), 2), dtype=np.int64)
    for i, client in enumerate(clients):
        for j, mask in enumerate((client.val, client.test)):
            defined = metric not in (*OF_TWO_CLASSES, "auc_ovr") or _separable(client.labels[mask])
            sizes[i, j] = mask.sum() if defined else 0
    return sizes


def _separable(labels: np.ndarray) -> bool:
    """Return True if some class has both positive and negative nodes."""
    return len(labels) > 0 and bool((labels != labels[0]).any())


class _Nodes(NamedTuple):
    """Masks and labels of the members' nodes for a score, ``[k * C, n]`` (multi-label data: labels ``[k * C, n, Y]``)."""

    labels: Tensor
    val: Tensor
    test: Tensor

    @property
    def scored(self) -> ScoredNodes:
        return ScoredNodes.of(self.val, self.test, torch.get_default_dtype())


class ByMember:
    """Score every member from pooled predictions, ``[S, N, Y]`` to ``[S, 2 C]``: validation and test per member."""

    def __init__(self, score: Score, federations: Sequence[Pooled], device: torch.device):
        self.score, self.count = score, len(federations[0].members)
        most = max(len(member.labels) for f in federations for member in f.members)
        stack: dict[str, list[np.ndarray]] = {name: [] for name in ("positions", "labels", "val", "test")}
        for federation in federations:
            (whole,) = federation.clients
            for member in federation.members:
                positions = np.searchsorted(whole.example_ids, member.example_ids)
                for name, values in {"positions": positions, **{n: getattr(member, n) for n in ("labels", "val", "test")}}.items():
                    padded = np.zeros((most, *values.shape[1:]), dtype=values.dtype)
                    padded[: len(member.labels)] = np.maximum(values, 0) if name == "labels" else values
                    stack[name].append(padded)
        shape = (len(federations), self.count)
        stacked = {name: torch.from_numpy(np.stack(rows)).to(device).unflatten(0, shape) for name, rows in stack.items()}
        self.positions, self.nodes = stacked.pop("positions"), _Nodes(**stacked)

    def __call__(self, logits: Float[Tensor, "S N Y"], batch: Batch) -> Float[Tensor, "S 2C"]:
        rows = batch.replicas
        positions = self.positions[rows].flatten(1)
        by_member = logits.gather(1, positions[..., None].expand(-1, -1, logits.shape[2])).unflatten(1, self.positions.shape[1:])
        nodes = _Nodes(*(part[rows].flatten(0, 1) for part in self.nodes))
        return self.score(by_member.flatten(0, 1), cast(Batch, nodes)).view(len(rows), -1)  # a score reads nothing else of a batch


def scoring(score: Score, federations: Sequence[Federation], device: torch.device) -> Score:
    """Return ``score`` by member for pooled federations. With a server, every member gets the server's score."""
    if isinstance(federations[0], PooledServerFederation):
        count = len(federations[0].members)
        return lambda logits, batch: score(logits, batch).repeat(1, count)
    pooled = [federation for federation in federations if isinstance(federation, Pooled)]
    return ByMember(score, pooled, device) if pooled else score
