"""A contextual stochastic block model (after Deshpande et al., NeurIPS 2018): a generated graph that needs no download.

Classes of skewed sizes hold communities, but some nodes live as strangers in a community of another class: they are
what makes real graphs hard, and without them neighbors alone give the labels away. Nodes carry a sparse bag of words,
some drawn from their class's topic. METIS and Louvain find the communities, so clients come out with skewed labels, as
they do on the real citation graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.checks import check_between
from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import Graph
from fgl_bench.data.out_of_core import canonical_edges_on_disk
from fgl_bench.data.storage import Disk, Memory, Storage, blocks, release
from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import generator

ROUNDS = 40
"""Rounds of drawing again what fell on an edge already there, before giving up."""

PAIRS = 1 << 25
"""Pairs that are drawn at a time: what bounds the memory of graphs with more edges."""

Draw = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Draws a given number of pairs, whose sources begin with the given nodes."""


@dataclass
class CSBM(Dataset):
    """The generator. The same keys and ``seed`` always give the same graph.

    Attributes:
        num_nodes, num_classes, num_features: sizes.
        num_edges: undirected edges, exact.
        homophily: share of edges inside a class, exact up to rounding.
        locality: share of the edges, of those inside a class and of those between classes, that stay in one community.
        communities_per_class: communities in every class.
        strangers: share of nodes that live in a community of any class, drawn at random.
        class_skew: class k (from 1) has a size proportional to ``k ** -class_skew``; 0 makes them equal.
        degree_skew: sigma of the log-normal node weights; 0 makes all nodes alike.
        words_per_node: expected distinct words of a node; null gives dense Gaussian features instead.
        feature_signal: share of a node's words that come from its class's topic (or distance of the Gaussian means).
        seed: of the generator; independent of the repetitions' seeds, as a downloaded graph would be.
    """

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    homophily: float
    locality: float
    communities_per_class: int
    strangers: float
    class_skew: float
    degree_skew: float
    words_per_node: float | None
    feature_signal: float
    seed: int

    def read(self, root: Path) -> Graph:
        self._check()
        labels, community = self._blocks(generator(self.seed, "csbm", "blocks"))
        row, col = self._edges(labels, community, generator(self.seed, "csbm", "edges"))
        draw = self._words if self.words_per_node is not None else self._gaussian
        features = draw(labels, generator(self.seed, "csbm", "features"))
        return self.graph(features, row, col, self._targets(labels), num_classes=self.num_classes)

    def stream(self, root: Path, disk: Disk) -> Graph | None:
        """Dense features are drawn a block at a time and edges are brought into their form in files; words stay in memory."""
        if self.words_per_node is not None:
            return None
        self._check()
        drawn = cache(lambda: self._blocks(generator(self.seed, "csbm", "blocks")))
        linked = cache(lambda: self._edges(*drawn(), generator(self.seed, "csbm", "edges")))

        def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            row, col = linked()
            return ((row[part], col[part]) for part in blocks(row.size, 8 * row.itemsize))

        edges = canonical_edges_on_disk(pairs, self.num_nodes, disk)
        linked.cache_clear()
        labels, _ = drawn()
        features = self._gaussian(labels, generator(self.seed, "csbm", "features"), disk)
        return Graph(self.name, features, edges, self._targets(labels), self.num_classes, self.metric)

    def feature_bytes(self) -> int:
        return 0 if self.words_per_node is not None else 4 * self.num_nodes * self.num_features

    def _targets(self, labels: np.ndarray) -> np.ndarray:
        """The labels to learn, from the classes ``[N]`` that determine edges and features."""
        return labels

    def _check(self) -> None:
        check_between("dataset.num_classes", self.num_classes, 1, self.num_nodes)
        check_between("dataset.communities_per_class", self.communities_per_class, 1, float("inf"))
        check_between("dataset.num_features", self.num_features, 1, float("inf"))
        check_between("dataset.num_edges", self.num_edges, 0, self.num_nodes * (self.num_nodes - 1) // 2)
        check_between("dataset.class_skew", self.class_skew, 0, float("inf"))
        check_between("dataset.degree_skew", self.degree_skew, 0, 3)
        for key in ("homophily", "locality", "strangers"):
            check_between(f"dataset.{key}", getattr(self, key), 0, 1)
        if self.words_per_node is None:
            check_between("dataset.feature_signal", self.feature_signal, 0, float("inf"))
        else:
            check_between("dataset.feature_signal", self.feature_signal, 0, 1)
            check_between("dataset.words_per_node", self.words_per_node, 0, self.num_features / 2)

    def _blocks(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Labels ``[N]`` and communities ``[N]``, numbered class by class."""
        share = np.arange(1, self.num_classes + 1) ** -float(self.class_skew)
        spare = self.num_nodes - self.num_classes
        ends = 1 + np.arange(self.num_classes) + np.round(np.cumsum(share) / share.sum() * spare).astype(np.int64)
        labels = rng.permutation(np.repeat(np.arange(self.num_classes), np.diff(ends, prepend=0)))
        home = np.where(rng.random(self.num_nodes) < self.strangers, rng.permutation(labels), labels)
        return labels, home * self.communities_per_class + rng.integers(self.communities_per_class, size=self.num_nodes)

    def _edges(self, labels: np.ndarray, community: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        weight = rng.lognormal(sigma=self.degree_skew, size=self.num_nodes)
        inner = round(self.homophily * self.num_edges) if self.num_classes > 1 else self.num_edges
        local_inner, local_outer = round(self.locality * inner), inner + round(self.locality * (self.num_edges - inner))
        neighbors = _Blocks(community, weight)  # of any class
        within_block = _Blocks(np.unique(community * self.num_classes + labels, return_inverse=True)[1], weight)
        within_class, anywhere = _Blocks(labels, weight), _Blocks(np.zeros_like(labels), weight)
        # Every node starts one edge first, strangers without kin in the second round, so that few stay isolated.
        first, none = rng.permutation(self.num_nodes), np.empty(0, dtype=np.int64)

        keys = self._distinct(none, local_inner, first, lambda size, first: within_block.pairs(size, first, rng))
        linked = np.zeros(self.num_nodes, dtype=bool)
        for part in blocks(keys.size, 2 * keys.itemsize):
            linked[np.concatenate(np.divmod(keys[part], self.num_nodes))] = True
        isolated = rng.permutation(np.flatnonzero(~linked))
        keys = self._distinct(keys, inner, isolated, lambda size, first: within_class.pairs(size, first, rng))
        if keys.size < inner:
            raise UserError(f"dataset.homophily={self.homophily}: the classes are too small for {inner} edges inside them; lower num_edges")
        keys = self._distinct(keys, local_outer, none, lambda size, first: _different_labels(labels, *neighbors.pairs(size, first, rng)))
        keys = self._distinct(keys, self.num_edges, none, lambda size, first: _different_labels(labels, *anywhere.pairs(size, first, rng)))
        if keys.size < self.num_edges:
            raise UserError(f"dataset.num_edges={self.num_edges}: too many for {self.num_nodes} nodes with homophily={self.homophily}")
        return np.divmod(keys, self.num_nodes)

    def _distinct(self, keys: np.ndarray, target: int, starts: np.ndarray, draw: Draw) -> np.ndarray:
        """Sorted ``keys`` grown to ``target`` distinct undirected pairs, or as near as the rounds allow; ``starts`` begin one each."""
        for _ in range(ROUNDS + target // PAIRS):
            missing = min(target - keys.size, PAIRS)
            if missing <= 0:
                break
            size = missing + missing // 8 + 16
            u, v = draw(size, starts)
            starts = starts[size:] if missing == PAIRS else starts
            no_loop = u != v
            drawn = np.minimum(u, v)[no_loop] * self.num_nodes + np.maximum(u, v)[no_loop]
            values, first = np.unique(drawn, return_index=True)
            position = np.minimum(np.searchsorted(keys, values), max(keys.size - 1, 0))
            fresh = first[keys[position] != values] if keys.size else first
            # What is too much is cut in the order of drawing, which is random; the order of the keys is not.
            chosen = np.sort(drawn[np.sort(fresh)[:missing]])
            keys = np.insert(keys, np.searchsorted(keys, chosen), chosen)
        return keys

    def _words(self, labels: np.ndarray, rng: np.random.Generator) -> sp.csr_matrix:
        """0/1 bag of words: tokens drawn from a mixture of a common Zipf law and the class's topic, counted once each."""
        words, classes = self.num_features, self.num_classes
        background = rng.permutation(1.0 / (np.arange(words) + 0.1 * words + 1))
        topic = np.where(rng.random((classes, words)) < 1.0 / classes, background, 0.0)
        topic[np.arange(classes), rng.integers(words, size=classes)] += background.max()
        background, topic = background / background.sum(), topic / topic.sum(axis=1, keepdims=True)
        law = (1 - self.feature_signal) * background + self.feature_signal * topic
        assert self.words_per_node is not None
        tokens = rng.poisson(_tokens_for(law, self.words_per_node)[labels])
        row = np.repeat(np.arange(labels.size), tokens)
        # One sorted table for all classes: class k's cumulative law lies in [k, k + 1].
        table = np.minimum(np.cumsum(law, axis=1), 1.0) + np.arange(classes)[:, None]
        table[:, -1] = np.arange(classes) + 1
        position = np.searchsorted(table.ravel(), labels[row] + rng.random(row.size), side="right")
        # A sum can round up to the next class's range.
        col = np.minimum(position - labels[row] * words, words - 1)
        bags = sp.csr_matrix((np.ones(row.size, dtype=np.float32), (row, col)), shape=(labels.size, words))
        bags.data[:] = 1  # a word drawn twice is in the bag once
        return bags

    def _gaussian(self, labels: np.ndarray, rng: np.random.Generator, storage: Storage | None = None) -> np.ndarray:
        """Unit noise around class means that lie about ``feature_signal`` from the origin."""
        means = rng.standard_normal((self.num_classes, self.num_features), dtype=np.float32)
        means *= np.float32(self.feature_signal / self.num_features**0.5)

        def fill(out: np.ndarray) -> None:
            for part in blocks(labels.size, means.itemsize * self.num_features):
                out[part] = means[labels[part]] + rng.standard_normal((part.stop - part.start, self.num_features), dtype=np.float32)
                release(out)

        return (storage or Memory()).array("features", (labels.size, self.num_features), np.float32, fill)


class _Blocks:
    """Nodes sorted by block, with cumulative weights, to draw a partner inside a node's own block."""

    def __init__(self, block: np.ndarray, weight: np.ndarray) -> None:
        self.order = np.argsort(block, kind="stable")
        self.end = np.cumsum(weight[self.order])
        sizes = np.bincount(block)
        ends = np.cumsum(sizes)
        bounds = np.concatenate([[0.0], self.end])
        self.low, self.high = bounds[ends - sizes][block], bounds[ends][block]

    def pairs(self, size: int, first: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """``size`` pairs, the sources beginning with ``first``, the others drawn by weight."""
        u = np.concatenate([first[:size], self._at(rng.random(max(size - first.size, 0)) * self.end[-1])])
        v = self._at(self.low[u] + rng.random(u.size) * (self.high[u] - self.low[u]))
        return u, v

    def _at(self, position: np.ndarray) -> np.ndarray:
        return self.order[np.minimum(np.searchsorted(self.end, position, side="right"), self.order.size - 1)]


def _different_labels(labels: np.ndarray, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    different = labels[u] != labels[v]
    return u[different], v[different]


def _tokens_for(law: np.ndarray, distinct: float) -> np.ndarray:
    """Mean number of tokens, per class, that leaves ``distinct`` different words: sum_f 1 - exp(-t p_f) = distinct."""
    low, high = np.zeros(law.shape[0]), np.full(law.shape[0], max(distinct, 1.0))
    while (short := _distinct_words(law, high) < distinct).any() and high.max() < 1e7:
        high = np.where(short, 2 * high, high)
    for _ in range(50):
        middle = (low + high) / 2
        enough = _distinct_words(law, middle) >= distinct
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _distinct_words(law: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return -np.expm1(-tokens[:, None] * law).sum(axis=1)


@dataclass
class CSBMMultiLabel(CSBM):
    """A node has the label of its class, and others with probabilities that depend on the class: some go together, some do not.

    Attributes:
        labels_per_node: expected number of labels.
        label_concentration: of the Gamma weights of the other labels; small values give each class a few companions.
    """

    labels_per_node: float
    label_concentration: float

    def _targets(self, labels: np.ndarray) -> np.ndarray:
        check_between("dataset.labels_per_node", self.labels_per_node, 1, self.num_classes / 2)
        check_between("dataset.label_concentration", self.label_concentration, 1e-3, float("inf"))
        rng = generator(self.seed, "csbm", "labels")
        weight = rng.gamma(self.label_concentration, size=(self.num_classes, self.num_classes))
        np.fill_diagonal(weight, 0)
        weight /= weight.sum(axis=1, keepdims=True)
        odds = -np.expm1(-_tokens_for(weight, self.labels_per_node - 1)[:, None] * weight)
        np.fill_diagonal(odds, 1)
        targets = np.empty((labels.size, self.num_classes), dtype=np.float32)
        for label in range(self.num_classes):
            targets[:, label] = rng.random(labels.size) < odds[labels, label]
        return targets
