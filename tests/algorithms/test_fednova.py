"""FedNova: clients that take more local steps do not weigh more."""

from __future__ import annotations

import numpy as np
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fednova import FedNova
from fgl_bench.models.mlp import MLP
from tests.algorithms.comparing import TIGHT, assert_same_trips
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous


def run(algorithm, seeds=(0, 1), **settings):
    federations = [small_federation(seed) for seed in seeds]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 4, "local_epochs": 2, **settings})


def test_where_all_take_as_many_steps_it_is_fedavg():
    assert_same_trips(run(FedNova()), run(FedAvg()), fewest=40)
    assert_same_trips(run(FedNova(), participation=0.5), run(FedAvg(), participation=0.5), fewest=15)


def test_with_mini_batches_the_changes_are_averaged_by_step():
    batch_nodes, epochs, seed = 2, 3, 0
    federation = small_federation(seed)
    result = run(FedNova(), (seed,), batch_nodes=batch_nodes, local_epochs=epochs, model=MLP(hidden=4, layers=2, dropout=0.0))
    sizes = np.array([client.train.sum() for client in federation.observed], dtype=float)
    steps = epochs * np.ceil(sizes / batch_nodes).clip(1)  # without training nodes a client has no share
    assert len(set(steps)) > 1
    share = sizes / sizes.sum()
    effective = (share * steps).sum()
    for number in range(3):
        w = result.trips[0][number][0]
        expected = w.clone()
        for i, trips in enumerate(result.trips):
            expected += effective * share[i] * (trips[number][1] - w) / steps[i]
        torch.testing.assert_close(result.trips[0][number + 1][0], expected, **TIGHT)


def test_with_mini_batches_it_is_not_fedavg():
    settings = {"batch_nodes": 2, "model": MLP(hidden=4, layers=2, dropout=0.0)}
    one, other = (run(method, **settings).trips[0][-1][0] for method in (FedNova(), FedAvg()))
    assert not torch.allclose(one, other, atol=1e-3)
