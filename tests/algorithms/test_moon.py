"""MOON: when the contrast matters, its value by hand, and the plain loop."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.moon import Moon
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.stateful import assert_follows
from tests.reference.small import small_federation
from tests.reference.stateful import MOON
from tests.small_runs import simulate, synchronous

MODEL = GCN(hidden=4, layers=2, dropout=0.5)


def method(**changes):
    return Moon(**{"mu": 1.0, "temperature": 0.5, "previous": 1, "nodes": "all", **changes})


def run(algorithm, **settings):
    settings = {"rounds": 4, "local_epochs": 3, "model": MODEL, **settings}
    return simulate([small_federation(seed) for seed in (0, 1)], algorithm, synchronous(), **settings)


@pytest.mark.parametrize(
    ("changes", "epochs", "participation"),
    [({"mu": 5.0}, 1, 0.5), ({"nodes": "train", "temperature": 0.2}, 3, 1.0), ({"previous": 2}, 2, 0.5)],
)
def test_it_is_the_plain_loop(changes, participation, epochs):
    assert_follows(lambda: method(**changes), lambda: MOON(**changes), participation=participation, local_epochs=epochs, rounds=4)


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_without_strength_it_is_fedavg_bit_for_bit(participation):
    assert_same_trips(run(method(mu=0.0), participation=participation), run(FedAvg(), participation=participation), exact=True, fewest=16)


def test_a_clients_first_trip_is_fedavgs():
    """Bit for bit in the first round; in later ones too, beside clients that have a previous model."""
    assert_same_trips(run(method(mu=50.0), rounds=1), run(FedAvg(), rounds=1), exact=True, fewest=10)
    result = run(method(mu=50.0), participation=0.4, rounds=6)
    late = 0
    for row, trips in enumerate(result.trips):
        if not trips or torch.equal(trips[0][0], result.sim.initial[row]):
            continue
        received, trained = trips[0]
        out, fresh = torch.empty_like(received[None]), run(FedAvg(), rounds=0).sim.trainer
        fresh.trips([row], received[None], out, score=False)
        torch.testing.assert_close(trained, out[0], **TIGHT)
        late += 1
    assert late > 2


def contrast(algorithm, now, received, previous, valid=None, train=None):
    """The term for one replica of n nodes whose representations are given, ``[n, h]`` each."""
    now, received, previous = (torch.as_tensor(x, dtype=torch.float64) for x in (now, received, previous))
    count = len(now)
    everywhere = torch.ones(1, count, dtype=torch.bool)
    batch = SimpleNamespace(
        replicas=torch.tensor([0]), device=torch.device("cpu"), dtype=torch.float64,
        labeled=everywhere if valid is None else torch.tensor([valid]), train=everywhere if train is None else torch.tensor([train]),
    )  # fmt: skip
    output = SimpleNamespace(hidden=received[None])
    model = SimpleNamespace(forward=lambda *_: output)
    algorithm.prepare(SimpleNamespace(batch=SimpleNamespace(size=1, device=torch.device("cpu")), model=model, num_clients=1))
    algorithm.report(SimpleNamespace(batch=batch, output=SimpleNamespace(hidden=previous[None])))
    step = SimpleNamespace(batch=batch, epoch=0, parameters={}, first=torch.zeros(1), output=SimpleNamespace(hidden=now[None]))
    return algorithm.local_penalty(step)


def test_the_term_by_hand():
    """Cosines to the received and the previous model: 1 and 0 at the first node, 0 and -1 at the second."""
    value = contrast(method(mu=2.0), [[3.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [5.0, 0.0]], [[0.0, 4.0], [0.0, -1.0]])
    first = -math.log(math.exp(2) / (math.exp(2) + math.exp(0)))
    second = -math.log(math.exp(0) / (math.exp(0) + math.exp(-2)))
    assert value.tolist() == pytest.approx([2 * (first + second) / 2])


def test_padding_does_not_count_and_training_nodes_can_be_chosen():
    nodes = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0]] * 3, [[0.0, 1.0]] * 3
    each = [contrast(method(), *([part[i]] for part in nodes)).item() for i in range(3)]
    assert contrast(method(), *nodes, valid=[True, True, False]).item() == pytest.approx((each[0] + each[1]) / 2)
    assert contrast(method(nodes="train"), *nodes, train=[False, True, False]).item() == pytest.approx(each[1])
    assert contrast(method(nodes="train"), *nodes, train=[False] * 3).item() == 0


def test_nodes_with_nothing_but_zeros_give_no_gradient_and_no_nan():
    now = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    zeros = torch.zeros(2, 2, dtype=torch.float64)
    value = contrast(method(), now, zeros, zeros)
    assert value.item() == pytest.approx(math.log(2))
    contrast(method(), now, [[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2).sum().backward()
    assert torch.isfinite(now.grad).all() and not now.grad[0].any() and now.grad[1].any()


def test_it_sends_what_fedavg_sends():
    history = run(method(), participation=0.4).histories[0]
    assert history.upload[-1] == history.download[-1] == 8 * 4 * MODEL_SCALARS
