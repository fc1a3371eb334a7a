"""Noise scenarios: wrong labels, features or edges in a client's training view. Counts and rounding follow OpenFGL's perturbations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.graph import ClientGraph
from fgl_bench.errors import SHARE, Range, UserError, at_least


class Noise(ABC):
    """Corrupts what one client observes while it trains; scores read the graph without noise.

    Noise comes after sparsity: it corrupts the labels, edges and features that sparsity leaves.

    Class attributes:
        alters_graph: True if features or edges change, not only labels.
    """

    alters_graph: ClassVar[bool] = True

    @abstractmethod
    def apply(self, client: ClientGraph, classes: int, rng: np.random.Generator) -> ClientGraph:
        """Return the client with noise; the client itself if nothing is corrupted.

        Args:
            classes: number of classes of the whole graph.

        Raises:
            UserError: the noise is not defined for these labels.
        """


@dataclass
class NoNoise(Noise):
    """Clients observe what is true."""

    alters_graph: ClassVar[bool] = False

    def apply(self, client: ClientGraph, classes: int, rng: np.random.Generator) -> ClientGraph:
        return client


@dataclass
class LabelNoise(Noise):
    """``round(rate * |train|)`` training nodes have a wrong label.

    Attributes:
        rate: share of a client's training nodes.
        kind: ``symmetric``, any other class with equal probability; or ``pairwise``, the next class (Han et al., NeurIPS 2018).
    """

    alters_graph: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {"rate": SHARE}

    rate: float
    kind: Literal["symmetric", "pairwise"]

    def apply(self, client: ClientGraph, classes: int, rng: np.random.Generator) -> ClientGraph:
        if client.labels.ndim > 1:
            raise UserError("scenario/noise=label: needs one class per node, and this dataset has several labels per node")
        training = np.flatnonzero(client.train)
        wrong = rng.choice(training, size=round(self.rate * training.size), replace=False)
        if not wrong.size or classes < 2:
            return client
        labels = client.labels.copy()
        labels[wrong] = (labels[wrong] + SHIFTS[self.kind](wrong.size, classes, rng)) % classes
        return replace(client, labels=labels)


SHIFTS = {
    "symmetric": lambda count, classes, rng: rng.integers(1, classes, count),
    "pairwise": lambda count, classes, rng: 1,
}


@dataclass
class FeatureNoise(Noise):
    """Gaussian noise with standard deviation ``rate`` is added to every feature of every node. The features become dense."""

    ranges: ClassVar[dict[str, Range]] = {"rate": at_least(0)}

    rate: float

    def apply(self, client: ClientGraph, classes: int, rng: np.random.Generator) -> ClientGraph:
        if not self.rate:
            return client
        features = client.features.toarray() if sp.issparse(client.features) else np.asarray(client.features)
        return replace(client, features=features + self.rate * rng.standard_normal(features.shape, dtype=np.float32))


@dataclass
class EdgeNoise(Noise):
    """``round(rate * E)`` undirected edges are added to the E of a client, between random pairs of nodes that have none."""

    ranges: ClassVar[dict[str, Range]] = {"rate": at_least(0)}

    rate: float

    def apply(self, client: ClientGraph, classes: int, rng: np.random.Generator) -> ClientGraph:
        nodes, (row, col) = client.num_nodes, client.edges
        known = row[row < col] * nodes + col[row < col]
        count = min(round(self.rate * known.size), nodes * (nodes - 1) // 2 - known.size)
        if not count:
            return client
        new = np.empty(0, dtype=np.int64)
        while new.size < count:
            one, other = rng.integers(nodes, size=(2, 2 * (count - new.size) + 8))
            drawn = np.minimum(one, other) * nodes + np.maximum(one, other)
            drawn = drawn[(one != other) & ~np.isin(drawn, known)]
            new = np.concatenate([new, drawn])
            new = new[np.sort(np.unique(new, return_index=True)[1])]  # in the order of the draws
        low, high = np.divmod(new[:count], nodes)
        keys = np.sort(np.concatenate([row * nodes + col, low * nodes + high, high * nodes + low]))
        return replace(client, edges=np.stack(np.divmod(keys, nodes)))
