"""D-PSGD: the plain loop, FedAvg on the complete graph, the orders, bytes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fgl_bench.algorithms.d_psgd import DPSGD
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.local import Local
from fgl_bench.engine.shard import ALONE
from fgl_bench.engine.topologies import TOPOLOGIES, Links
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, UniformAverage, assert_same_trips
from tests.algorithms.peers import alike, assert_follows, decentralized, meeting, run, watch_exchanges
from tests.reference import decentralized as plain
from tests.small_runs import synchronous


def method(**changes):
    return DPSGD(**{"weights": "metropolis", "order": "train_mix", **changes})


@pytest.mark.parametrize(("order", "epochs"), [("train_mix", 3), ("lian", 1)])
def test_it_follows_the_plain_loop_on_a_ring(order, epochs):
    assert_follows(lambda: method(order=order), lambda _: plain.DPSGD(plain.ring(6), order == "lian"), local_epochs=epochs)


def test_on_the_complete_graph_it_is_uniform_averaging_and_with_equal_sizes_fedavg():
    gossip = run(method(), scenario=decentralized(topology="complete"))
    assert_same_trips(gossip, run(UniformAverage(), scenario=synchronous()), fewest=60)
    equal = [alike(seed=seed) for seed in (0, 1)]
    gossip = run(method(), federations=equal, scenario=decentralized(topology="complete"), local_epochs=2)
    assert_same_trips(gossip, run(FedAvg(), federations=equal, scenario=synchronous(), local_epochs=2), fewest=40)


def test_without_neighbours_it_is_local_training():
    alone, local = run(method(), scenario=decentralized(topology="isolated")), run(Local(), scenario=decentralized())
    assert_same_trips(alone, local, fewest=60)
    assert alone.histories[0].upload[-1] == 0


@pytest.mark.parametrize("topology", ["ring", "random_regular", "erdos_renyi"])
def test_mixing_keeps_the_mean(topology):
    algorithm = method()
    seen = watch_exchanges(algorithm)
    run(algorithm, scenario=decentralized(topology=topology, link_failure=0.3))
    for trained, _, exchange in seen:
        torch.testing.assert_close(exchange.models.mean(1), trained.mean(1), **TIGHT)
    assert len(seen) == 5


def test_mixing_first_is_the_same_sequence_of_models():
    later, first = run(method()), run(method(order="mix_train"))
    assert_same_trips(later, first, fewest=60)
    assert (first.histories[0].scores["received"][-1] == first.histories[0].scores["trained"][-1]).all()


@pytest.mark.parametrize("order", ["train_mix", "lian"])
def test_without_training_clients_come_together_monotonically(order):
    algorithm = method(order=order)
    algorithm.setting = SimpleNamespace(layout=SimpleNamespace(count=9), shard=ALONE)
    models = torch.randn(2, 6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, ring = models.mean(1, keepdim=True), torch.from_numpy(TOPOLOGIES["ring"](Links(6, 0, None, 2, 0.0)))
    distance = [(models - mean).norm()]
    for number in range(20):
        models = algorithm.exchange(meeting(models, number=number, heard=ring, received=models)).models
        distance.append((models - mean).norm())
    assert all(later < 0.9 * earlier for earlier, later in zip(distance, distance[1:], strict=False))
    torch.testing.assert_close(models.mean(1, keepdim=True), mean)


def test_bytes_of_a_ring_by_hand():
    history = run(method(), rounds=3).histories[0]
    model = 4 * MODEL_SCALARS
    assert history.upload.tolist() == history.download.tolist() == [0, 12 * model, 24 * model, 36 * model]
    assert history.busiest.tolist() == [0, 4 * model, 8 * model, 12 * model]


def test_the_matrix_is_kept_for_plots():
    result = run(method(), mixing_at=(6, 12))
    ring = torch.eye(6, dtype=torch.float64) + torch.eye(6, dtype=torch.float64).roll(1, 0) + torch.eye(6, dtype=torch.float64).roll(-1, 0)
    assert sorted(result.sim.mixing) == [6, 12]
    for matrix in result.sim.mixing.values():
        torch.testing.assert_close(matrix, (ring / 3).expand(2, 6, 6))
