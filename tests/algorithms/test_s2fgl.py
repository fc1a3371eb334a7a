"""S2FGL: the plain loop, its parts by hand, what is sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.s2fgl import S2FGL, ends, importance, laplacian
from fgl_bench.data.graph import ClientGraph
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.stateful import assert_follows
from tests.reference import s2fgl as plain
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {
    "repository_weight": 5.0, "temperature": 1.0, "slots": 2, "sampled": 1.0, "important": 0.6, "alpha": 0.85, "alignment_weight": 1.0,
    "aligned": 0.4, "neighbors": 2, "eigenvectors": 2, "projections": "pairs",
}  # fmt: skip


def method(**changes):
    return S2FGL(**{**KEYS, **changes})


def slow(**changes):
    return plain.S2FGL(**{name: value for name, value in {**KEYS, **changes}.items() if name not in ("slots", "sampled")})


@pytest.mark.parametrize(
    ("changes", "epochs", "participation"),
    [({}, 3, 1.0), ({"projections": "space", "temperature": 0.5, "eigenvectors": 3}, 2, 0.5)],
)
def test_it_is_the_plain_loop(changes, epochs, participation):
    assert_follows(
        lambda: method(slots=1, **changes), lambda: slow(**changes), participation=participation, local_epochs=epochs, rounds=3,
        tolerance=1e-5,
    )  # fmt: skip


def run(algorithm, **settings):
    return simulate([small_federation(seed) for seed in (0, 1)], algorithm, synchronous(), **{"rounds": 3, "local_epochs": 2, **settings})


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_without_its_terms_it_is_fedavg_bit_for_bit(participation):
    none = method(repository_weight=0.0, alignment_weight=0.0)
    assert_same_trips(run(none, participation=participation), run(FedAvg(), participation=participation), exact=True, fewest=12)


def test_the_first_round_is_fedavgs():
    assert_same_trips(run(method(), rounds=1), run(FedAvg(), rounds=1), exact=True, fewest=10)


def pair(train=(True, False)) -> ClientGraph:
    """Two nodes and an edge."""
    none = np.zeros(2, dtype=bool)
    return ClientGraph(np.arange(2), np.eye(2, dtype=np.float32), np.array([[0, 1], [1, 0]]), np.array([0, 1]), np.array(train), none, none)


def test_importance_of_two_nodes():
    """``(I - b A)^-1 = [[1, b], [b, 1]] / (1 - b^2)`` with b = 1 - alpha."""
    direct, remote = 1 / (1 - 0.25), 0.5 / (1 - 0.25)
    np.testing.assert_allclose(importance(pair(), 0.5), [1.5 * direct, 1.5 * remote])
    np.testing.assert_allclose(importance(pair((True, True)), 0.5), [direct + 0.5 * (direct + remote)] * 2)
    assert not importance(pair((False, False)), 0.5).any()


def test_frequencies_of_two_alike_nodes_and_one_apart():
    """With one neighbor each, 0 and 1 are joined; 2 is joined with the first of two that are equally far: cosine zero, no weight."""
    rows = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], dtype=torch.float64)
    matrix = laplacian(rows, torch.tensor([[True, True, True, False]]), 1)
    apart = torch.diag(1e-4 * torch.arange(4) / 3).double()
    expected = torch.tensor([[1.0, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 20]]).double() + apart
    torch.testing.assert_close(matrix[0], expected, **TIGHT)
    low, high = ends(matrix, torch.tensor([3]), 2)[0]
    joined, apart = torch.tensor([0.5, 0.5, 0, 0]).double().sqrt(), torch.tensor([0, 0, 1.0, 0]).double()
    torch.testing.assert_close(low.abs(), torch.stack([joined, apart], 1), rtol=0, atol=1e-4)
    torch.testing.assert_close(high.abs(), torch.stack([joined, apart], 1), rtol=0, atol=1e-4)
    assert low[0, 0] * low[1, 0] > 0 > high[0, 0] * high[1, 0]


def test_more_eigenvectors_than_nodes_are_zero():
    matrix = laplacian(torch.ones(1, 4, 2), torch.tensor([[True, False, False, False]]), 3)
    vectors = ends(matrix, torch.tensor([1]), 3)[0]
    assert vectors.abs().sum((1, 2)).tolist() == [1.0, 1.0] and vectors[:, 0, 0].abs().tolist() == [1.0, 1.0]


class Stub:
    """What ``mix`` reads of a run with two seeds and four clients."""

    full_participation = True
    weights = torch.ones(2, 4, dtype=torch.float64)


def test_a_slot_has_the_mean_of_the_drawn_clients():
    algorithm = method(slots=3, sampled=0.5)
    algorithm.setting, algorithm.round, algorithm.repository, algorithm.streams = Stub(), 0, None, torch.tensor([5, 6])
    counts = torch.tensor([[[1.0, 0.0], [3.0, 0.0], [0.0, 0.0], [2.0, 0.0]]] * 2).double()
    sums = counts[..., None] * torch.tensor([1.0, 10.0, 100.0, 1000.0]).double().view(1, 4, 1, 1)
    drawn = set()
    for _ in range(30):
        algorithm.mix({"sums": sums, "counts": counts}, torch.tensor([[True, True, True, False]] * 2))
        entries = algorithm.repository.view(2, 3, 2)
        assert not entries[..., 1].any()  # a class that nobody has
        drawn.add(tuple(entries[..., 0].flatten().tolist()))
    assert {mean for each in drawn for mean in each} == {0.0, 1.0, 10.0}  # of one of three arrived clients, never of the fourth
    assert len(drawn) > 10  # slots, seeds and rounds draw for themselves


def test_labels_outside_training_are_not_in_the_repository():
    algorithm = method(important=1.0)
    run(algorithm, rounds=1)
    train = np.array([client.train.sum() for seed in (0, 1) for client in small_federation(seed).clients])
    trips = algorithm.setting.batch.truth(3) * algorithm.important_nodes[..., None]
    assert trips.sum((1, 2)).tolist() == train.tolist()


def test_what_is_sent():
    history = run(method()).histories[0]
    sent = (4 * 5 * 2 * (MODEL_SCALARS + 3 * 4 + 3), 4 * 5 * 2 * (MODEL_SCALARS + 2 * 3 * 4))
    assert (history.upload[2], history.download[2]) == sent
