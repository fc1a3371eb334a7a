"""Sparsity scenarios: data removed from a client's training view. Rates and rounding follow OpenFGL's perturbations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.checks import check_between, check_choice
from fgl_bench.data.graph import ClientGraph
from fgl_bench.data.masks import SLACK

EVALUATIONS = ("clean", "observed")


class Sparsity(Protocol):
    """Removes labels, edges or features from one client's graph.

    Attributes:
        evaluation: which of the two graphs is scored.
        alters_graph: whether features or edges are other ones afterwards, not only masks.
    """

    evaluation: str
    alters_graph: ClassVar[bool]

    def apply(self, client: ClientGraph, rng: np.random.Generator) -> ClientGraph: ...


@dataclass
class NoSparsity:
    """Nothing is taken away."""

    evaluation: ClassVar[str] = "clean"
    alters_graph: ClassVar[bool] = False

    def apply(self, client: ClientGraph, rng: np.random.Generator) -> ClientGraph:
        return client


@dataclass
class _Rated:
    """A share ``rate`` is taken away; evaluation uses the ``clean`` graph or the ``observed`` one."""

    alters_graph: ClassVar[bool] = True

    rate: float
    evaluation: str

    def __post_init__(self) -> None:
        check_between("scenario.sparsity.rate", self.rate, 0.0, 1.0)
        check_choice("scenario.sparsity.evaluation", self.evaluation, EVALUATIONS)


@dataclass
class LabelSparsity(_Rated):
    """``round(rate * |train|)`` training nodes lose their label (they leave the train mask); not per class."""

    alters_graph: ClassVar[bool] = False

    def apply(self, client: ClientGraph, rng: np.random.Generator) -> ClientGraph:
        training = np.flatnonzero(client.train)
        train = client.train.copy()
        train[rng.choice(training, size=round(self.rate * training.size), replace=False)] = False
        return replace(client, train=train)


@dataclass
class TopologySparsity(_Rated):
    """``round((1 - rate) * E)`` of the undirected edges stay, in both directions."""

    def apply(self, client: ClientGraph, rng: np.random.Generator) -> ClientGraph:
        row, col = client.edges
        forward = np.flatnonzero(row < col)
        stays = np.zeros(row.size, dtype=bool)
        stays[rng.choice(forward, size=round((1 - self.rate) * forward.size), replace=False)] = True
        # Sorted by (column, row), the backward edges come in the order of the forward ones.
        backward = np.flatnonzero(row > col)
        stays[backward[np.lexsort((row[backward], col[backward]))]] = stays[forward]
        return replace(client, edges=np.ascontiguousarray(client.edges[:, stays]))


@dataclass
class FeatureSparsity(_Rated):
    """Set ``floor(rate * nnz)`` of every node's non-zero feature entries to zero."""

    def apply(self, client: ClientGraph, rng: np.random.Generator) -> ClientGraph:
        dense = isinstance(client.features, np.ndarray)
        matrix = sp.csr_matrix(client.features)
        count = np.diff(matrix.indptr)
        row = np.repeat(np.arange(matrix.shape[0]), count)
        order = np.lexsort((rng.random(matrix.nnz), row))
        rank = np.arange(matrix.nnz) - matrix.indptr[row]
        stays = np.ones(matrix.nnz, dtype=bool)
        stays[order[rank < np.floor(self.rate * count + SLACK)[row]]] = False
        pointers = np.concatenate([[0], np.cumsum(np.bincount(row[stays], minlength=matrix.shape[0]))])
        sparse = sp.csr_matrix((matrix.data[stays], matrix.indices[stays], pointers), shape=matrix.shape)
        return replace(client, features=sparse.toarray() if dense else sparse)
