"""FedGTA: its limits, its matrix, what it reports and sends."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedgta import FedGTA
from fgl_bench.algorithms.local import Local
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips, trips_of, watch
from tests.engine.graphs import make_client, permuted
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous
from tests.test_equivalence import GTA


def method(**changes):
    return FedGTA(**{**GTA, **changes})


def run(algorithm, federations=None, **settings):
    federations = [small_federation(seed) for seed in (0, 1)] if federations is None else federations
    return simulate(federations, algorithm, synchronous(), **{"rounds": 4, "mixing_at": (10,), **settings})


def mixed(algorithm, confidence, moments, arrived=None):
    """The matrix ``[C, C]`` for these reports."""
    confidence = torch.tensor([confidence], dtype=torch.float64)
    arrived = torch.ones_like(confidence, dtype=torch.bool) if arrived is None else torch.tensor([arrived])
    algorithm.setting = SimpleNamespace(full_participation=bool(arrived.all()))
    return algorithm.mix({"confidence": confidence, "moments": torch.tensor([moments], dtype=torch.float64)}, arrived).matrix()[0]


DIRECTIONS = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [-1.0, 0.0]]


def test_a_threshold_beyond_one_is_local_training():
    result = run(method(threshold=1.01))
    assert_same_trips(result, run(Local()), fewest=40)
    torch.testing.assert_close(result.sim.mixing[10], torch.eye(5, dtype=torch.float64).expand(2, 5, 5))


@pytest.mark.parametrize("propagation", ["official", "paper", "openfgl"])
@pytest.mark.parametrize("moments", ["hybrid", "raw", "central"])
def test_a_threshold_of_minus_one_makes_rank_one_of_the_confidences(propagation, moments):
    algorithm = method(threshold=-1.0, propagation=propagation, moments=moments)
    calls = watch(algorithm, "mix")
    run(algorithm)
    for (reports, _), mixing in calls:
        confidence = reports["confidence"]
        expected = (confidence / confidence.sum(1, keepdim=True))[:, None].expand(-1, 5, -1)
        torch.testing.assert_close(mixing.matrix(), expected, **TIGHT)
    assert len(calls) == 4


def test_rows_of_every_round_are_stochastic_and_supported_on_the_cluster():
    algorithm = method(threshold=0.98)
    calls = watch(algorithm, "mix")
    run(algorithm)
    for (reports, _), mixing in calls:
        matrix, confidence = mixing.matrix(), reports["confidence"]
        assert matrix.isfinite().all() and (matrix >= 0).all() and (confidence >= 0).all()
        torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 5, dtype=torch.float64), **TIGHT)
        own = matrix.diagonal(dim1=1, dim2=2)
        assert (own[confidence > 0] > 0).all(), "a client belongs to its own cluster"
        assert (confidence[:, 1] == 0).all(), "no edges, no confidence"


def test_the_matrix_by_hand():
    # 0 and 1 are alike, 2 and 3 are alone.
    matrix = mixed(method(threshold=0.5), [1.0, 3.0, 2.0, 0.0], DIRECTIONS)
    assert matrix.tolist() == [[0.25, 0.75, 0, 0], [0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_a_similarity_at_the_threshold_is_not_above_it():
    """Clients 0 and 2 are at right angles: cosine 0. Client 1 is at 0.1 / sqrt(1.01) to client 2."""
    matrix = mixed(method(threshold=0.0), [1.0, 3.0, 2.0, 0.0], DIRECTIONS)
    assert matrix[0].tolist() == [0.25, 0.75, 0, 0]
    torch.testing.assert_close(matrix[1], torch.tensor([1, 3, 2, 0], dtype=torch.float64) / 6)


def test_a_cluster_without_any_confidence_counts_alike():
    assert mixed(method(threshold=0.5), [0.0, 0.0, 2.0, 1.0], DIRECTIONS)[0].tolist() == [0.5, 0.5, 0, 0]


def test_a_cluster_member_without_confidence_takes_all_from_the_others():
    """The numerator of eq. 7 is the sender's confidence, not the receiver's."""
    assert mixed(method(threshold=0.5), [0.0, 3.0, 2.0, 1.0], DIRECTIONS)[0].tolist() == [0, 1, 0, 0]


def test_only_participants_are_mixed_and_receive():
    matrix = mixed(method(threshold=-1.0), [1.0, 3.0, 2.0, 2.0], DIRECTIONS, arrived=[True, True, False, False])
    assert matrix.tolist() == [[0.25, 0.75, 0, 0], [0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("propagation", ["official", "paper", "openfgl"])
def test_renumbering_nodes_changes_no_report(propagation):
    client, order = make_client(10, seed=2), np.random.default_rng(0).permutation(10)
    logits = torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain, moved = (
        method(propagation=propagation).report(trips_of([c], [z])) for c, z in ((client, logits), (permuted(client, order), logits[order]))
    )
    for name in plain:
        torch.testing.assert_close(moved[name], plain[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("moments", "size"), [("hybrid", 60), ("raw", 30), ("central", 30)])
def test_reports_of_a_client_with_one_class_and_of_one_without_edges(moments, size):
    single = replace(make_client(6), labels=np.full(6, 2))
    bare = replace(make_client(5, edges=0.0), train=np.zeros(5, dtype=bool))
    certain = torch.zeros(6, 3, dtype=torch.float64)
    certain[:, 2] = 50.0
    reports = method(moments=moments).report(trips_of([single, bare], [certain, np.zeros((5, 3))]))
    assert reports["moments"].shape == (2, size)
    assert all(value.isfinite().all() for value in reports.values())
    assert reports["confidence"][0] > 0 and reports["confidence"][1] == 0


def test_bytes_by_hand():
    # Up: the model, two kinds of moments of ten orders for three classes, one confidence. Down: the model.
    history = run(method()).histories[0]
    assert history.upload.tolist() == [4 * n * (MODEL_SCALARS + 2 * 10 * 3 + 1) for n in (0, 5, 10, 15, 20)]
    assert history.download.tolist() == [4 * n * MODEL_SCALARS for n in (0, 5, 10, 15, 20)]
    raw = run(method(moments="raw", orders=6)).histories[0]
    assert raw.upload[-1] == 4 * 20 * (MODEL_SCALARS + 6 * 3 + 1)


# ---- ablations


def test_without_moments_everybody_is_one_cluster():
    algorithm = method(moments="none")
    calls = watch(algorithm, "mix")
    result = run(algorithm)
    assert_same_trips(result, run(method(threshold=-1.0)), fewest=40)
    for (reports, _), mixing in calls:
        assert set(reports) == {"confidence"}
        torch.testing.assert_close(mixing.matrix().sum(-1), torch.ones(2, 5, dtype=torch.float64), **TIGHT)
    assert result.sim.similarity == {} and calls


@pytest.mark.parametrize(("weights", "counts"), [("samples", [1.0, 3.0, 2.0, 2.0]), ("uniform", [1.0, 1.0, 1.0, 1.0])])
def test_without_confidence_clusters_stay_and_members_count_by(weights, counts):
    algorithm = method(threshold=0.5, weights=weights)
    algorithm.setting = SimpleNamespace(full_participation=True, weights=torch.tensor([[1.0, 3.0, 2.0, 2.0]], dtype=torch.float64))
    moments = torch.tensor([DIRECTIONS], dtype=torch.float64)
    matrix = algorithm.mix({"moments": moments}, torch.ones(1, 4, dtype=torch.bool)).matrix()[0]
    share = counts[0] / (counts[0] + counts[1])
    torch.testing.assert_close(matrix[:2, :2], torch.tensor([[share, 1 - share]] * 2, dtype=torch.float64))
    assert torch.equal(matrix[2:], torch.eye(4, dtype=torch.float64)[2:])


def test_without_either_part_it_is_fedavg():
    bare = run(method(moments="none", weights="samples"))
    assert_same_trips(bare, run(FedAvg()), exact=True, fewest=40)
    assert bare.histories[0].upload.tolist() == run(FedAvg()).histories[0].upload.tolist()


def test_bytes_of_the_ablations():
    assert run(method(moments="none")).histories[0].upload[-1] == 4 * 20 * (MODEL_SCALARS + 1)
    assert run(method(weights="samples")).histories[0].upload[-1] == 4 * 20 * (MODEL_SCALARS + 60)
