"""FedProx: when the proximal term matters, and that it is the gradient of what the paper writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedprox import FedProx
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.models.gcn import GCN
from fgl_bench.models.gin_plain import GINPlain
from tests.algorithms.comparing import assert_same_trips
from tests.reference.small import small_federation
from tests.small_graph_sets import TASK, of_graphs
from tests.small_runs import simulate, synchronous

MODEL = GCN(hidden=4, layers=2, dropout=0.5)


@dataclass
class Penalised(FedAvg):
    """The proximal term as a loss, differentiated by autograd."""

    mu: float

    def local_penalty(self, step):
        received = step.layout.views(step.received)
        pulled = [name for name in received if name not in step.layout.personal]
        return sum(self.mu / 2 * (step.parameters[name] - received[name]).pow(2).flatten(1).sum(1) for name in pulled)


def run(method, **settings):
    settings = {"rounds": 4, "local_epochs": 3, "model": MODEL, **settings}
    return simulate([small_federation(seed) for seed in (0, 1)], method, synchronous(), **settings)


def test_without_strength_it_is_fedavg_bit_for_bit():
    assert_same_trips(run(FedProx(mu=0.0)), run(FedAvg()), exact=True, fewest=40)


def test_with_one_epoch_it_is_fedavg_bit_for_bit():
    assert_same_trips(run(FedProx(mu=100.0), local_epochs=1), run(FedAvg(), local_epochs=1), exact=True, fewest=40)


@pytest.mark.parametrize("mu", [0.01, 30.0])
def test_the_term_is_the_gradient_of_half_mu_times_the_squared_distance(mu):
    assert_same_trips(run(FedProx(mu=mu)), run(Penalised(mu=mu)), fewest=40)


def test_a_client_s_own_layers_are_not_pulled():
    federation = replace(of_graphs(), personal_ends=True)

    def trained(method):
        model = TASK.network(GINPlain(4, 2, 0.0, "linear"))
        return simulate([federation], method, synchronous(), rounds=2, local_epochs=2, model=model)

    pulled, free = trained(FedProx(mu=1e3)), trained(FedAvg())
    assert_same_trips(pulled, trained(Penalised(mu=1e3)), fewest=6)
    weights = [run.named(run.trips[0][0][1])["conv1.weight"] for run in (pulled, free)]
    assert not torch.allclose(*weights)


def test_the_term_pulls_towards_the_received_model():
    """Worked out by hand, on both sides of the received model."""
    theta, received = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[0.0, 1.0, 0.5]])
    step = SimpleNamespace(epoch=1, theta=theta, received=received, layout=ParameterLayout({"a": (3,)}))
    assert FedProx(mu=0.5).correct_gradient(step, torch.tensor([[1.0, 1.0, 1.0]])).tolist() == [[1.5, -0.5, 1.0]]
    step.epoch = 0
    assert FedProx(mu=0.5).correct_gradient(step, torch.ones(1, 3)).tolist() == [[1, 1, 1]]
