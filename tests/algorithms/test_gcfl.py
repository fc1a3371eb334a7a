"""GCFL and GCFL+: FedAvg before a split, which clients a split parts, clusters that only get finer."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from tests.algorithms.clusters import BOTH, EAGER, gcfl, plus, run, watch_clusters
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips, watch


@BOTH
@pytest.mark.parametrize("changes", [{"eps2": 1e9, "eps1": 1e9, "warmup": 0}, {"eps1": 0.0, "warmup": 0}, {**EAGER, "warmup": 7}])
def test_it_is_fedavg_until_the_first_split(make, changes):
    left, right = (run(method, participation=0.5) for method in (make(**changes), FedAvg()))
    assert_same_trips(left, right, exact=True, fewest=42)


@BOTH
def test_clusters_partition_the_clients_and_only_get_finer(make):
    algorithm = make(**EAGER)
    seen = watch_clusters(algorithm)
    run(algorithm, participation=0.5, rounds=12)
    before = np.zeros((2, 6), dtype=int)
    for clusters, matrix, arrived in seen:
        for s in range(2):
            assert set(clusters[s]) == set(range(clusters[s].max() + 1))
            for i, j in combinations(range(6), 2):
                assert clusters[s, i] != clusters[s, j] or before[s, i] == before[s, j], "who was parted stays parted"
        weights = algorithm.setting.weights * arrived
        same = torch.from_numpy(clusters[:, :, None] == clusters[:, None])
        expected = torch.where(same, weights[:, None], 0.0)
        heard = expected.sum(-1) > 0
        expected = expected / expected.sum(-1, keepdim=True).clamp(min=1)
        torch.testing.assert_close(matrix[heard], expected[heard], **TIGHT)
        torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 6, dtype=torch.float64), **TIGHT)
        before = clusters
    assert before.max() >= 1, "something was split"


def test_opposite_updates_are_parted_exactly():
    """Two groups that pull against each other; the average stands still."""
    algorithm, sides = gcfl(eps1=0.2, eps2=0.5, warmup=0), np.array([1, -1, 1, 1, -1, -1])
    run(algorithm, seeds=(0,), rounds=1)
    algorithm.prepare(algorithm.setting)
    update = torch.zeros(1, 6, algorithm.setting.layout.size, dtype=torch.float64)
    update[0, :, 3] = torch.from_numpy(sides).double()
    update[0, :, 5:11] = 0.01 * torch.eye(6, dtype=torch.float64)
    reports, everybody = {"update": update, "size": torch.ones(1, 6)}, torch.ones(1, 6, dtype=torch.bool)
    matrix = algorithm.mix(reports, everybody).matrix()[0]
    assert ((matrix > 0).numpy() == ((sides[:, None] == sides) & (algorithm.setting.weights[0] > 0).numpy())).all()
    assert len(set(zip(sides, algorithm.clusters[0], strict=True))) == 2
    # Now both clusters move, and neither is split.
    algorithm.mix(reports, everybody)
    assert algorithm.clusters.max() == 1


def test_pairs_are_never_split_and_nothing_is_fetched_for_them():
    algorithm = gcfl(**EAGER)
    asked = watch(algorithm, "evidence")
    run(algorithm, clients=2, seeds=(0,), rounds=8)
    assert algorithm.clusters.max() == 0 and not asked
    late = gcfl(**{**EAGER, "warmup": 5})
    asked = watch(late, "evidence")
    run(late, seeds=(0,), rounds=6)
    assert len(asked) == 1, "only the round after the warm-up looks"


def test_relative_thresholds_do_not_depend_on_the_scale():
    for scale in (1.0, 1e3):
        algorithm = gcfl(eps1=0.2, eps2=0.5, warmup=0, relative=True)
        run(algorithm, seeds=(0,), rounds=1)
        algorithm.prepare(algorithm.setting)
        update = torch.zeros(1, 6, algorithm.setting.layout.size, dtype=torch.float64)
        update[0, :, 0] = scale * torch.tensor([1.0, -1, 1, -1, 1, -1])
        algorithm.mix({"update": update, "size": torch.full((1, 6), scale)}, torch.ones(1, 6, dtype=torch.bool))
        assert algorithm.clusters[0].tolist() in ([0, 1] * 3, [1, 0] * 3)


def test_convolutions_alone_are_shared_where_asked():
    algorithm = gcfl(shared="conv", warmup=100)
    assert_same_trips(run(algorithm), run(FedAvg()), fewest=84)  # the small GCN has nothing but convolutions
    assert algorithm.count == MODEL_SCALARS


def test_bytes_by_hand():
    # Up: the update and, with GCFL+, one norm; down: the model.
    for algorithm, more in ((gcfl(), 0), (plus(), 1)):
        history = run(algorithm, rounds=3).histories[0]
        assert history.upload[-1] == 4 * 18 * (MODEL_SCALARS + more) and history.download[-1] == 4 * 18 * MODEL_SCALARS
