"""GCFL+: series of gradient norms; what it shares with GCFL is tested there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.errors import UserError
from fgl_bench.models.mlp import MLP
from tests.algorithms.clusters import EAGER, plus, run
from tests.algorithms.comparing import TIGHT, watch


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
