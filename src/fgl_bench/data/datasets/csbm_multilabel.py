"""A contextual stochastic block model whose nodes have several labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgl_bench.data.checks import check_between
from fgl_bench.data.datasets.csbm import CSBM, _tokens_for
from fgl_bench.utils.seeding import generator


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
        found = np.empty((labels.size, self.num_classes), dtype=np.float32)
        for label in range(self.num_classes):
            found[:, label] = rng.random(labels.size) < odds[labels, label]
        return found
