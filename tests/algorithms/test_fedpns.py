"""FedPNS: other clients' nodes in every other batch only."""

from __future__ import annotations

import torch

from fgl_bench.algorithms.cross_client.fedpns import FedPNS
from tests.algorithms.crossing import fedaas, run
from tests.algorithms.test_fedcross import SHARED
from tests.reference.cross_client import small_served


def fedpns(**changes):
    return FedPNS(**{**SHARED, "sampling": "uniform", "interval": 2, "between": "drop", **changes})


def test_between_synchronisations_only_the_clients_own_neighbours_take_part():
    method, seen = fedpns(), []
    step = method._step

    def watched(trainer, trips, plan, number):
        level = plan.levels[0]
        chosen = method.chosen[0][level.number]
        near = torch.bincount(level.edges.target[~level.loop & ~level.remote], minlength=level.shape[0] * level.shape[1])
        drawn = torch.bincount(level.edges.target[chosen & ~level.loop & ~level.remote], minlength=near.numel())
        seen.append((int((chosen & level.remote).sum()), torch.equal(drawn, near.clamp(max=3))))
        step(trainer, trips, plan, number)

    method._step = watched
    run([small_served(drop=0.0)], method, rounds=1)
    remote, full = zip(*seen, strict=True)
    assert remote[0] > 0 and remote[2] > 0 and remote[1] == remote[3] == 0
    assert full[1] and full[3]


def test_interval_one_is_uniform_sampling_with_an_exchange_before_every_batch():
    federation = small_served()
    one, other = (run([federation], method).trips for method in (fedpns(interval=1), fedaas(sampling="uniform", interval=1)))
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a[-1][1], b[-1][1])


def test_it_fetches_in_half_of_the_batches():
    every, second = fedpns(interval=1, fanout=None), fedpns(fanout=None)
    for method in (every, second):
        run([small_served()], method, rounds=1)
    assert second.moved.syncs[0].tolist() == [2] and 0 < int(second.moved.rows.sum()) < int(every.moved.rows.sum())
