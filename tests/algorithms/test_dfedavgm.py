"""DFedAvgM: heavy-ball steps that begin at rest, the mean, quantisation, bytes."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.dfedavgm import DFedAvgM
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, UniformAverage, assert_same_trips
from tests.algorithms.peers import decentralized, run, watch_exchanges
from tests.algorithms.stateful import use_sgd
from tests.reference import decentralized as plain
from tests.reference.decentralized import run_decentralized
from tests.reference.small import small_federation
from tests.reference.training import Client
from tests.small_runs import synchronous
from tests.test_equivalence import assert_same, start


def method(**changes):
    return DFedAvgM(**{"momentum": 0.9, "bits": None, "lr": None, **changes})


def test_it_follows_a_plain_loop_with_a_new_sgd_every_round(monkeypatch):
    train = Client.train

    def afresh(client, epochs, trip, proximal=0.0):
        client.optimizer = torch.optim.SGD(client.model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        train(client, epochs, trip, proximal)

    monkeypatch.setattr(Client, "train", afresh)
    result = run(method(lr=0.05), local_epochs=3)
    for s in (0, 1):
        federation = small_federation(s, clients=6)
        trace = run_decentralized(federation, plain.DPSGD(plain.ring(6)), start(result, s * 6), rounds=5, local_epochs=3)
        for number, one in enumerate(trace):
            for i in range(6):
                assert_same(result, result.trips[s * 6 + i][number][1], one.trained[i], 1e-9)


def test_without_momentum_on_the_complete_graph_it_is_averaging_of_descent(monkeypatch):
    gossip = run(method(momentum=0.0), scenario=decentralized(topology="complete"), local_epochs=2)
    use_sgd(monkeypatch)
    assert_same_trips(gossip, run(UniformAverage(), scenario=synchronous(), local_epochs=2), fewest=60)


@pytest.mark.parametrize("bits", [None, 4])
def test_mixing_keeps_the_mean_of_what_is_sent(bits):
    algorithm = method(bits=bits)
    seen = watch_exchanges(algorithm)
    run(algorithm, local_epochs=2, lr=0.1)
    for number, (trained, received, exchange) in enumerate(seen):
        sent = trained if bits is None else received + algorithm.quantized(trained - received, number)
        torch.testing.assert_close(exchange.models.mean(1), sent.mean(1), **TIGHT)


def test_quantisation_is_unbiased_and_within_one_step():
    algorithm = method(bits=4)
    run(algorithm, rounds=1)
    change = torch.randn(2, 6, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    change[1, 2] = 0
    step = change.abs().amax(-1, keepdim=True) / 7
    draws = torch.stack([algorithm.quantized(change, number) for number in range(200)])
    assert ((draws - change).abs() <= step + 1e-12).all() and not draws[:, 1, 2].any()
    levels = draws / torch.where(step > 0, step, 1.0)
    torch.testing.assert_close(levels, levels.round()), "multiples of the step"
    assert levels.abs().max() <= 7 + 1e-9
    assert ((draws.mean(0) - change).abs() <= 5 * step / (2 * 200**0.5) + 1e-12).all()


def test_bytes_by_hand():
    assert run(method(), rounds=3).histories[0].upload[-1] == 3 * 12 * 4 * MODEL_SCALARS
    assert run(method(bits=3), rounds=3).histories[0].upload[-1] == 3 * 12 * (-(-MODEL_SCALARS * 3 // 8) + 4)
