"""FedALA: clients start from a learned element-wise mixture of the global and their own last model."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedala import FedALA
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, assert_same_trips
from tests.algorithms.personal import assert_follows
from tests.reference import personal
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {"adapted_layers": 1, "step_size": 5.0, "sample": 1.0, "tolerance": 0.1, "most_steps": 50}


def method(**changes):
    return FedALA(**{**KEYS, **changes})


def plain(**changes):
    keys = {**KEYS, **changes}
    return personal.FedALA(keys["adapted_layers"], keys["step_size"], keys["tolerance"], keys["most_steps"])


def run(algorithm, **settings):
    federations = [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 4, "local_epochs": 2, "lr": 0.05, **settings})


CASES = [({}, 1.0), ({"adapted_layers": 2}, 1.0), ({"tolerance": 1e-9, "most_steps": 14}, 1.0), ({"tolerance": 1e-4}, 0.5)]


@pytest.mark.parametrize(("changes", "participation"), CASES)
def test_it_is_the_plain_loop(changes, participation):
    """Also where clients converge at different steps, never, or begin in different rounds."""
    made = method(**changes)
    assert_follows(lambda: made, lambda: plain(**changes), participation=participation, lr=0.05)
    assert min(float(weight.min()) for weight in made.weights.values()) < 0.9, "no weight was learned"


def test_a_mixture_by_hand():
    """One step on W = 1 with slopes -1 and 0.1, the global model 2 above the client's: 1 - 0.5 * slope * 2, clipped to [0, 1]."""
    made = method(step_size=0.5, most_steps=1)
    made.weights, made.local = {"a": torch.ones(1, 2)}, {"a": torch.tensor([[1.0, 3.0]])}
    made.pending, made.trained, made.learned = {"a": torch.ones(1, 2)}, np.array([True]), np.array([True])
    made.setting = SimpleNamespace(layout=SimpleNamespace(views=lambda x: {"a": x}, view=lambda x, name: x))
    made._slopes = lambda *_: (torch.zeros(1), {"a": torch.tensor([[-1.0, 0.1]])})
    made._share = lambda *_: None
    starts = torch.tensor([[3.0, 5.0]])
    made._mix_locally(slice(0, 1), SimpleNamespace(device=torch.device("cpu")), None, starts.clone(), starts)
    torch.testing.assert_close(made.pending["a"], torch.tensor([[1.0, 0.9]]))
    torch.testing.assert_close(starts, torch.tensor([[3.0, 4.8]]))


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("changes", [{"adapted_layers": 0}, {"step_size": 0.0}])
def test_without_layers_or_steps_it_is_fedavg_bit_for_bit(changes, participation):
    settings = {"participation": participation, "model": GCN(hidden=4, layers=3, dropout=0.5)}
    assert_same_trips(run(method(**changes), **settings), run(FedAvg(), **settings), exact=True, fewest=24)


def test_first_layers_are_those_of_the_global_model():
    ala = run(method(), rounds=2)
    sizes = ala.sim.setting.weights
    for row, trips in enumerate(ala.trips):
        received, seed = ala.named(trips[1][0]), row // 5
        share = sizes[seed] / sizes[seed].sum()
        average = {name: sum(share[i] * ala.named(ala.trips[5 * seed + i][0][1])[name] for i in range(5)) for name in received}
        for name, value in received.items():
            close = torch.allclose(value, average[name], rtol=1e-9, atol=1e-9)
            assert close == (name.startswith("conv0") or row % 5 == 4), (row, name)  # the last client has no training nodes


@pytest.mark.parametrize(("sample", "drawn"), [(0.8, 0.8), (0.01, 0.0)])
def test_the_share_of_training_nodes_that_is_drawn(sample, drawn):
    result = run(made := method(sample=sample))
    batch = result.sim.setting.batch
    masks = []
    for _ in range(2):
        made.turn += 1
        share = torch.zeros(batch.train.shape, dtype=torch.float64)
        share.view(-1)[made.train.index] = made._share(slice(None), batch, made.train)
        masks.append(share > 0)
        totals = share.sum(1)
        assert torch.allclose(totals[batch.train.any(1)], torch.ones((), dtype=torch.float64))
        counts = [max(1, int(drawn * count)) if count else 0 for count in batch.num_train]
        assert masks[-1].sum(1).tolist() == counts and not (masks[-1] & ~batch.train).any()
    assert sample < 0.5 or not torch.equal(*masks), "another draw in every round"


def test_nothing_travels_in_addition_to_the_models():
    history = run(method()).histories[0]
    assert history.upload[-1] == history.download[-1] == 20 * 4 * MODEL_SCALARS


def test_too_many_adapted_layers_are_refused():
    with pytest.raises(UserError, match="adapted_layers=3.*0 to 2"):
        run(method(adapted_layers=3))
