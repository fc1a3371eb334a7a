"""The label propagation baseline against dense matrices, worked out client by client."""

from __future__ import annotations

import numpy as np

from fgl_bench.algorithms.label_propagation import LabelPropagation
from tests.engine.graphs import federation, from_edges
from tests.reference.small import small_federation
from tests.small_runs import counts, simulate, synchronous


def answers(member, classes: int, alpha: float, steps: int) -> np.ndarray:
    adjacency = np.eye(member.num_nodes)
    adjacency[member.edges[1], member.edges[0]] = 1
    scale = adjacency.sum(1) ** -0.5
    known = np.eye(classes)[member.labels] * member.train[:, None]
    spread = known
    for _ in range(steps):
        spread = alpha * (scale[:, None] * adjacency * scale) @ spread + (1 - alpha) * known
    return np.where(spread.sum(1) > 1e-4, spread.argmax(1), known.sum(0).argmax())


def test_labels_spread_over_a_client_s_own_edges():
    federations = [small_federation(seed) for seed in (0, 1)]
    for alpha, steps in ((0.9, 10), (0.5, 1)):
        result = simulate(federations, LabelPropagation(alpha, steps), synchronous(), rounds=1)
        for history, federated in zip(result.histories, federations, strict=True):
            for i, member in enumerate(federated.clients):
                right = answers(member, federated.num_classes, alpha, steps) == member.labels
                assert counts(history, "trained", -1)[i] == ((right & member.val).sum(), (right & member.test).sum())
                assert counts(history, "received", -1)[i] == counts(history, "trained", -1)[i]
            assert not history.upload.any() and not history.download.any()


def test_a_node_that_no_label_reaches_gets_the_most_frequent_class():
    # 0 - 1 - 2 is labeled at 0, the pair 3 - 4 at none; nodes 5 and 6 are labeled and alone.
    member = from_edges([(0, 1), (1, 2), (3, 4)], [0, 0, 1, 1, 0, 1, 1], train=[0, 5, 6], features=np.eye(7))
    result = simulate([federation([member])], LabelPropagation(0.9, 10), synchronous(), rounds=1)
    assert counts(result.histories[0], "received", 0)[0][1] == 2  # of 1, 2, 3, 4: the answers are 0, 0, 1, 1
