"""GCFL and GCFL+: FedAvg before a split, which clients a split parts, clusters that only get finer."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.gcfl import GCFL
from fgl_bench.algorithms.gcfl_plus import GCFLPlus
from fgl_bench.errors import UserError
from fgl_bench.models.mlp import MLP
from tests.algorithms.batching import assert_batching_changes_nothing
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips, watch
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {"eps1": 0.05, "eps2": 0.1, "relative": False, "warmup": 20, "shared": "all"}
EAGER = {"eps1": 1e9, "eps2": 0.0, "warmup": 2}  # splits whenever it may
BOTH = pytest.mark.parametrize("make", [lambda **c: gcfl(**c), lambda **c: plus(**c)], ids=["gcfl", "gcfl_plus"])


def gcfl(**changes):
    return GCFL(**{**KEYS, **changes})


def plus(**changes):
    return GCFLPlus(**{**KEYS, "sequence": 2, "standardize": False, **changes})


def run(algorithm, seeds=(0, 1), clients=6, **settings):
    federations = [small_federation(seed, clients=clients) for seed in seeds]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 7, **settings})


def watch_clusters(algorithm):
    """Clusters ``[S, C]`` after every round."""
    seen, mix = [], algorithm.mix

    def recording(reports, arrived):
        mixing = mix(reports, arrived)
        seen.append((algorithm.clusters.copy(), mixing.matrix().clone(), arrived.clone()))
        return mixing

    algorithm.mix = recording
    return seen


@BOTH
@pytest.mark.parametrize("changes", [{"eps2": float("inf"), "eps1": 1e9, "warmup": 0}, {"eps1": 0.0, "warmup": 0}, {**EAGER, "warmup": 7}])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_it_is_fedavg_until_the_first_split(make, changes, participation):
    left, right = (run(method, participation=participation) for method in (make(**changes), FedAvg()))
    assert_same_trips(left, right, exact=True, fewest=42)


@BOTH
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_clusters_partition_the_clients_and_only_get_finer(make, participation):
    algorithm = make(**EAGER)
    seen = watch_clusters(algorithm)
    run(algorithm, participation=participation, rounds=12)
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


@pytest.mark.parametrize("standardize", [False, True])
def test_unlike_series_are_parted_and_cleared(standardize):
    algorithm, group = plus(**{**EAGER, "warmup": 0, "sequence": 3, "standardize": standardize}), np.array([0, 1, 0, 0, 1, 1])
    run(algorithm, seeds=(0, 1), rounds=1)
    algorithm.prepare(algorithm.setting)
    everybody = torch.ones(2, 6, dtype=torch.bool)
    update = torch.ones(2, 6, algorithm.setting.layout.size, dtype=torch.float64)
    for number in range(3):
        assert algorithm.clusters.max() == 0, "there are fewer than three norms"
        shapes = np.where(group == 0, [5.0, 3.0, 1.0][number], [1.0, 2.0, 5.0][number]) + 1e-3 * np.arange(6)
        norm = torch.from_numpy(shapes).expand(2, 6)
        algorithm.mix({"update": update, "size": torch.ones(2, 6), "norm": norm}, everybody)
    for s in (0, 1):
        assert len(set(zip(group, algorithm.clusters[s], strict=True))) == 2
    assert algorithm.series.isnan().all()


def test_equal_series_split_nothing():
    algorithm = plus(**EAGER, standardize=True)
    run(algorithm, seeds=(0,), rounds=1)
    algorithm.prepare(algorithm.setting)
    update = torch.ones(1, 6, algorithm.setting.layout.size, dtype=torch.float64)
    for _ in range(6):
        algorithm.mix({"update": update, "size": torch.ones(1, 6), "norm": torch.ones(1, 6)}, torch.ones(1, 6, dtype=torch.bool))
    assert algorithm.clusters.max() == 0 and not algorithm.series.isnan().any()


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


def test_what_is_reported():
    """The update, and the norm of the last step's gradient of the loss."""
    algorithm = plus(warmup=100)
    gradients, correct = [], algorithm.correct_gradient
    algorithm.correct_gradient = lambda step, gradient: gradients.append(gradient.clone()) or correct(step, gradient)
    reported = watch(algorithm, "mix")
    result = run(algorithm, seeds=(0,), rounds=2, local_epochs=3)
    for number in range(2):
        (reports, _), _ = reported[number]
        for i in range(6):
            received, trained = result.trips[i][number]
            torch.testing.assert_close(reports["update"][0, i], trained - received, **TIGHT)
        torch.testing.assert_close(reports["norm"][0], gradients[3 * number + 2].norm(dim=1), **TIGHT)


def test_convolutions_alone_are_shared_where_asked():
    algorithm = gcfl(shared="conv", warmup=100)
    assert_same_trips(run(algorithm), run(FedAvg()), fewest=84)  # the small GCN has nothing but convolutions
    assert algorithm.count == MODEL_SCALARS


def test_bytes_by_hand():
    # Up: the update and, with GCFL+, one norm; down: the model.
    for algorithm, more in ((gcfl(), 0), (plus(), 1)):
        history = run(algorithm, rounds=3).histories[0]
        assert history.upload[-1] == 4 * 18 * (MODEL_SCALARS + more) and history.download[-1] == 4 * 18 * MODEL_SCALARS


@BOTH
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_batching_changes_nothing(make, participation):
    assert_batching_changes_nothing(lambda: make(**EAGER), synchronous, participation=participation, rounds=5)


def test_a_series_needs_a_length():
    with pytest.raises(UserError, match=r"algorithm\.sequence=0"):
        run(plus(sequence=0))


@pytest.mark.parametrize("chunk", [None, 4])
def test_in_mini_batches_the_norm_is_that_of_every_clients_own_last_step(chunk):
    """Clients have one to three mini-batches here: some sit the last ones out."""
    algorithm, last = plus(), {}
    step_norm, reported = algorithm.correct_gradient, watch(algorithm, "report")

    def recording(step, gradient):
        for row, size, each in zip(step.rows, step.batch.num_train, gradient, strict=True):
            if size:
                last[row] = each.norm()
        return step_norm(step, gradient)

    algorithm.correct_gradient = recording
    run(algorithm, rounds=1, local_epochs=2, batch_nodes=3, model=MLP(4, 2, 0.5), chunk=chunk)
    norms = torch.cat([reports["norm"] for _, reports in reported])
    assert len({int(count) for count in -(-algorithm.setting.batch.num_train // 3)}) > 2
    for row, norm in enumerate(norms):
        assert norm == last.get(row, 0)
