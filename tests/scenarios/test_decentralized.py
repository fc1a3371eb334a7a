"""Decentralised rounds: failing links, the clock, what is refused, bytes of edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.d_psgd import DPSGD
from fgl_bench.algorithms.local import Local
from fgl_bench.algorithms.majority import Majority
from fgl_bench.engine.topologies import TOPOLOGIES
from tests.algorithms.comparing import TIGHT, assert_same_trips
from tests.algorithms.peers import decentralized, run, watch_exchanges
from tests.small_runs import synchronous


def method():
    return DPSGD(weights="metropolis", order="train_mix")


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_every_topology_sends_what_it_mixes(topology):
    algorithm = method()
    seen = watch_exchanges(algorithm)
    history = run(algorithm, scenario=decentralized(topology=topology), rounds=4).histories[0]
    total = 0
    for *_, exchange in seen:
        matrix, sent = exchange.matrix[0], exchange.sent[0]
        torch.testing.assert_close(matrix.sum(1), torch.ones(6, dtype=torch.float64), **TIGHT)
        assert torch.equal(sent > 0, (matrix > 0) & ~torch.eye(6, dtype=torch.bool))
        total += int(sent.sum())
    assert history.upload[-1] == history.download[-1] == total


def test_a_link_that_always_fails_carries_nothing():
    broken = run(method(), scenario=decentralized(link_failure=1.0))
    assert_same_trips(broken, run(Local(), scenario=decentralized()), fewest=60)
    assert broken.histories[0].upload[-1] == broken.histories[0].busiest[-1] == 0


def test_links_fail_both_ways_and_as_often_as_they_should():
    scenario, algorithm = decentralized(topology="complete", link_failure=0.25), method()
    sim = run(algorithm, scenario=scenario, rounds=1).sim
    up = np.stack([scenario.adjacency(sim, 0, time) for time in range(400)])
    assert (up == up.transpose(0, 2, 1)).all()
    assert up.sum() / (400 * 30) == pytest.approx(0.75, abs=0.02)
    assert 0.6 < up.mean(0)[~np.eye(6, dtype=bool)].min() and not (up[0] == up[1]).all()


def test_a_static_graph_is_drawn_once():
    sim = run(method(), rounds=1).sim
    for dynamic in (True, False):
        scenario = decentralized(topology="random_regular", dynamic=dynamic)
        graphs = [scenario.adjacency(sim, 0, time) for time in range(6)]
        assert all((graph == graphs[0]).all() for graph in graphs) != dynamic
    scenario = decentralized(topology="one_peer_exponential", dynamic=False)
    assert not (scenario.adjacency(sim, 0, 0) == scenario.adjacency(sim, 0, 1)).all(), "deterministic graphs follow the time"


def test_seeds_have_graphs_of_their_own_and_methods_the_same():
    one, other = method(), method()
    seen = [watch_exchanges(algorithm) for algorithm in (one, other)]
    for algorithm in (one, other):
        run(algorithm, scenario=decentralized(topology="random_k_in"))
    assert not torch.equal(seen[0][0][2].matrix[0], seen[0][0][2].matrix[1])
    for (*_, a), (*_, b) in zip(*seen, strict=True):
        assert torch.equal(a.matrix, b.matrix)


def test_local_and_majority_are_as_with_a_server():
    for algorithm in (Local, Majority):
        here, there = run(algorithm(), scenario=decentralized()), run(algorithm(), scenario=synchronous())
        assert_same_trips(here, there, exact=True, fewest=60)
        for a, b in zip(here.histories, there.histories, strict=True):
            assert (a.scores["trained"] == b.scores["trained"]).all() and (a.scores["received"] == b.scores["received"]).all()
        assert here.histories[0].upload[-1] == 0 and there.histories[0].busiest is None


def test_a_round_lasts_as_long_as_its_slowest_trip():
    quick, slow = run(method()), run(method(), scenario=decentralized(slow_fraction=0.5, lag=[3, 3]))
    assert quick.histories[0].time.tolist() == [0, 1, 2, 3, 4, 5] and slow.histories[0].time.tolist() == [0, 3, 6, 9, 12, 15]
    assert_same_trips(quick, slow, exact=True, fewest=60)
