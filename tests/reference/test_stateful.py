"""Sanity of the plain loops for methods with memory and for servers that answer at once: reductions and values by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from .buffered import Message, Upload
from .immediate import TWAFL, FedAsync
from .models import flatten
from .small import small_federation
from .stateful import MOON, SCAFFOLD, FedDC, run_stateful
from .sync import FedAvg, run_sync
from .test_reference import same, scalar, start_for


@pytest.mark.parametrize(("method", "weighting"), [(MOON(mu=0.0), "train"), (SCAFFOLD(), "uniform"), (FedDC(clip=None), "uniform")])
def test_the_first_step_is_fedavgs(method, weighting):
    federation = small_federation(0)
    initial = start_for(federation)
    (one,) = run_stateful(federation, method, initial, rounds=1)
    (other,) = run_sync(federation, FedAvg(), initial, rounds=1, agg_weight=weighting)
    assert all(same(one.trained[i], other.trained[i], 1e-12) for i in range(5))
    if not isinstance(method, FedDC):  # which adds the mean drift
        assert same(one.aggregate, other.received[0], 1e-12)


def test_moon_without_strength_is_fedavg():
    federation = small_federation(1)
    initial = start_for(federation)
    trace = run_stateful(federation, MOON(mu=0.0), initial, rounds=4, local_epochs=2)
    average = run_sync(federation, FedAvg(), initial, rounds=4, local_epochs=2)
    assert same(trace[-1].aggregate, average[-1].received[0], 1e-9)


def test_moons_loss_by_hand():
    now, along, across = (torch.tensor(v) for v in ([2.0, 0.0], [3.0, 0.0], [0.0, 1.0]))
    method = MOON(temperature=0.5)
    assert float(method.contrast(now, along, [across])) == pytest.approx(math.log(1 + math.exp(-2)))
    assert float(method.contrast(now, across, [along, across])) == pytest.approx(math.log(2 + math.exp(2)))
    assert float(method.contrast(0 * now, along, [across])) == pytest.approx(math.log(2))


def test_scaffolds_c_stays_the_mean_of_the_clients():
    federation, method = small_federation(0, clients=6), SCAFFOLD()
    run_stateful(federation, method, start_for(federation), rounds=4, local_epochs=2, chosen=[[0, 1], [2, 5], [0, 3], [1, 4]])
    assert torch.allclose(method.c, sum(method.own) / 6, atol=1e-14) and method.c.abs().max() > 1e-4
    assert not method.own[5].any()


def test_feddcs_drift_is_what_the_client_moved():
    federation, method = small_federation(0), FedDC()
    trace = run_stateful(federation, method, start_for(federation), rounds=3, local_epochs=2)
    moved = sum(float((flatten(r.trained[0]) - flatten(r.received)).sum()) for r in trace)
    assert float(method.drift[0].sum()) == pytest.approx(moved)


def test_fedasync_by_hand():
    method = FedAsync(alpha=0.5, halve_after=1)
    method.start(scalar(4.0), [])
    method.step([Upload(0, Message(scalar(0.0), 0), scalar(8.0), None)], 1)
    assert float(method.model["w"]) == 6.0
    step = method.step([Upload(1, Message(scalar(0.0), 0), scalar(2.0), None)], 5)  # four versions old, half of alpha
    weight = 0.25 / math.sqrt(5)
    assert float(step.replies[1].payload["w"]) == pytest.approx(6.0 - 4.0 * weight) and step.replies[1].version == 5


def test_twafl_by_hand():
    """Two clients of sizes 1 and 3, deep layers in odd rounds, a = 2."""

    def parameters(shallow, deep):
        return {f"conv{layer}.{part}": torch.tensor([value]) for layer, value in ((0, shallow), (1, deep)) for part in ("weight", "bias")}

    method = TWAFL(base=2.0, loop=2, exchange_rounds=(1,))
    method.start(parameters(0.0, 0.0), [SimpleNamespace(num_train=1), SimpleNamespace(num_train=3)])
    assert method.extra_down == 0 and method.extra_up == -2
    reply = method.step([Upload(0, Message({}, 0), parameters(10.0, 20.0), None)], 1).replies[0]
    # the other's initial copy is one round older: weights 1 and 3 / 2
    assert {name: float(v) for name, v in reply.payload.items()} == pytest.approx({"conv0.weight": 4.0, "conv0.bias": 4.0})
    assert method.extra_down == -2 and method.extra_up == 0
    reply = method.step([Upload(1, Message({}, 0), parameters(-6.0, 5.0), None)], 2).replies[1]
    # shallow: 1/2 of 10 and 3 of -6; deep: the first's is the initial copy, two rounds older, 1/4 of 0 and 3 of 5
    assert float(reply.payload["conv0.weight"]) == pytest.approx(-13 / 3.5) and float(reply.payload["conv1.bias"]) == pytest.approx(
        15 / 3.25
    )
    assert method.begin(Message({"conv0.bias": torch.tensor([1.0])}, 1), parameters(7.0, 8.0), None)["conv1.bias"] == 8.0
