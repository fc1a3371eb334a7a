"""APFL: a client's own model is trained inside its mixture with the global one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fgl_bench.algorithms.apfl import APFL
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.local import Local
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS
from tests.algorithms.personal import assert_follows, assert_same_scores
from tests.reference import personal
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous


def run(algorithm, **settings):
    model = GCN(hidden=4, layers=3, dropout=0.5)
    federations = [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 4, "local_epochs": 2, "model": model, **settings})


@pytest.mark.parametrize(
    ("keys", "participation"),
    [((0.5, "trip", 0.0), 1.0), ((0.3, "step", 0.2), 0.5), ((0.25, "never", 0.0), 1.0), ((0.0, "step", 0.0), 1.0)],
)
def test_it_is_the_plain_loop(keys, participation):
    assert_follows(lambda: APFL(*keys), lambda: personal.APFL(*keys), participation=participation, lr=0.05)


@pytest.mark.parametrize(("slope", "expected"), [(1.0, 0.35), (-9.0, 1.0), (9.0, 0.0)])
def test_the_step_of_alpha_by_hand(slope, expected):
    """0.5 - 0.1 (slope + 1 * 0.5), clipped to [0, 1]; a client without training nodes keeps its weight."""
    method, layout = APFL(0.5, "trip", 1.0), ParameterLayout({"w": (1,), "alpha": (1,)})
    method.setting = SimpleNamespace(lr=0.1)
    theta, gradient = torch.tensor([[7.0, 0.5], [7.0, 0.5]]), torch.tensor([[2.0, slope], [0.0, 0.0]])
    batch = SimpleNamespace(train=torch.tensor([[True, False], [False, False]]))
    for epoch in (0, 1):
        method.correct_gradient(SimpleNamespace(layout=layout, theta=theta, batch=batch, epoch=epoch), gradient)
    torch.testing.assert_close(theta, torch.tensor([[7.0, expected], [7.0, 0.5]]))


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("alpha", "other"), [(1.0, Local), (0.0, FedAvg)])
def test_fixed_weights_at_the_ends_are_local_training_and_fedavg_bit_for_bit(alpha, other, participation):
    mixed, plain = run(APFL(alpha, "never", 0.0), participation=participation), run(other(), participation=participation)
    for trips, others in zip(mixed.trips, plain.trips, strict=True):
        for rows, other_rows in zip(trips, others, strict=True):
            for row, other_row in zip(rows, other_rows, strict=True):
                for name, value in plain.named(other_row).items():
                    assert torch.equal(mixed.named(row)[f"personal.{name}" if alpha else name], value)
    assert_same_scores(mixed, plain)


def test_weights_follow_the_clients_and_stay_in_their_range():
    result = run(APFL(0.5, "step", 0.0), lr=0.1, rounds=6)
    alpha = torch.stack([result.named(trips[-1][1])["alpha"] for trips in result.trips]).view(2, 5)
    assert ((alpha >= 0) & (alpha <= 1)).all()
    assert (alpha[:, :4] != 0.5).all() and alpha[:, :4].std() > 1e-3
    assert (alpha[:, 4] == 0.5).all(), "the last client has no training nodes"


def test_neither_the_own_model_nor_the_weight_travels():
    history = run(APFL(0.5, "trip", 0.0), model=None).histories[0]
    assert history.upload[-1] == history.download[-1] == 20 * 4 * MODEL_SCALARS
