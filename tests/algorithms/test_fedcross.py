"""FedCross: random neighbours of both kinds before every batch."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.cross_client.fedcross import FedCross
from tests.algorithms.crossing import KEYS, everything, fedaas, run
from tests.reference.cross_client import small_served

SHARED = {key: value for key, value in KEYS.items() if key not in ("adaptive", "min_interval", "loss_source", "rule")}


def fedcross(**changes):
    return FedCross(**{**SHARED, "fanout": 1, "fanout_remote": 2, "sampling": "uniform", "interval": 1, **changes})


def test_both_kinds_have_a_limit_of_their_own():
    method = fedcross()
    recorded = run([small_served(clients=2, drop=0.0)], method, rounds=0)
    _, plan, seen = everything(method, recorded.sim.initial)
    level, target = seen[1][0], seen[1][0].edges.target
    chosen, slots = method.chosen[0][level.number], level.shape[0] * level.shape[1]
    for kind, limit in ((level.remote, 2), (~level.remote & ~level.loop, 1)):
        there, drawn = (torch.bincount(target[mask], minlength=slots) for mask in (kind, kind & chosen))
        assert torch.equal(drawn, there.clamp(max=limit)) and (there > limit).any()


def test_without_limits_it_is_fedall():
    federation = small_served()
    all_, both = (
        run([federation], m).trips for m in (fedaas(fanout=None, sampling="uniform", interval=1), fedcross(fanout=None, fanout_remote=None))
    )
    for a, b in zip(all_, both, strict=True):
        assert torch.equal(a[-1][1], b[-1][1])


def test_every_batch_fetches_what_it_draws_and_nothing_else():
    method = fedcross(fanout_remote=1)
    run([small_served()], method, rounds=1)
    nodes = len(method.halo.slots)
    assert 0 < int(method.moved.rows.sum()) <= nodes and method.moved.syncs[0].tolist() == [4]


@pytest.mark.parametrize("limits", [{"fanout": None, "fanout_remote": 2}, {"fanout": 1, "fanout_remote": None}])
def test_attention_scores_whatever_is_limited(limits):
    method, told = fedcross(sampling="attention", **limits), []
    choose = method.choose
    method.choose = lambda number, level, allowed, scores, noise: told.append(scores) or choose(number, level, allowed, scores, noise)
    run([small_served()], method, rounds=1)
    assert told and all(scores is not None for scores in told)
