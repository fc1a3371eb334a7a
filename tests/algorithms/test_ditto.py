"""Ditto: the global model is FedAvg's, and personal models are pulled to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fgl_bench.algorithms.ditto import Ditto
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.local import Local
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.models.gcn import GCN
from fgl_bench.models.sgc import SGC
from fgl_bench.models.unifilter import UniFilter
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT
from tests.algorithms.personal import assert_follows, assert_same_scores
from tests.reference import personal
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

MODELS = [
    GCN(hidden=4, layers=3, dropout=0.5), SGC("lazy", 2), UniFilter(2, 0.5, 4, 2, 0.5, 0.0, 0.0, "exact", "client", 0.5, True, 0.05, 0.0),
]  # fmt: skip


def run(algorithm, **settings):
    federations = [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 4, "local_epochs": 2, "model": MODELS[0], **settings})


def halves(result, row):
    """The global and the personal parameters of a row, by name."""
    named = result.named(row)
    own = {name.removeprefix("personal."): value for name, value in named.items() if name.startswith("personal.")}
    return {name: named[name] for name in own}, own


@pytest.mark.parametrize(("penalty", "participation"), [(0.0, 1.0), (0.7, 1.0), (3.0, 0.5)])
def test_it_is_the_plain_loop(penalty, participation):
    assert_follows(lambda: Ditto(penalty), lambda: personal.Ditto(penalty), participation=participation)


def test_the_pull_by_hand():
    """Gradients 1 at w = 0 and v = 2, and a received model of 0.5: the personal one gets 3 (2 - 0.5) more."""
    method, layout = Ditto(3.0), ParameterLayout({"a": (1,), "personal.a": (1,)})
    method.shared = ("a",)
    step = SimpleNamespace(layout=layout, theta=torch.tensor([[0.0, 2.0]]), received=torch.tensor([[0.5, 9.0]]))
    assert method.correct_gradient(step, torch.ones(1, 2)).tolist() == [[1.0, 5.5]]


CASES = [(MODELS[0], 1.0), (MODELS[0], 0.6), (MODELS[1], 1.0), (MODELS[2], 0.6)]
IDS = [f"{type(model).__name__}-{participation}" for model, participation in CASES]


def assert_same_halves(ditto, other, personal, exact):
    compared = 0
    for trips, others in zip(ditto.trips, other.trips, strict=True):
        for rows, other_rows in zip(trips, others, strict=True):
            for row, other_row in zip(rows, other_rows, strict=True):
                for name, value in other.named(other_row).items():
                    half = halves(ditto, row)[personal][name]
                    assert torch.equal(half, value) if exact else torch.allclose(half, value, **TIGHT), name
                compared += 1
    assert compared >= 48


@pytest.mark.parametrize(("model", "participation"), CASES, ids=IDS)
def test_global_models_are_those_of_fedavg(model, participation):
    """To the bit with the GCN; SGC's sums of one width are made in another order when two lie side by side."""
    settings = {"model": model, "participation": participation}
    assert_same_halves(run(Ditto(0.7), **settings), run(FedAvg(), **settings), 0, isinstance(model, GCN))


@pytest.mark.parametrize(("model", "participation"), CASES, ids=IDS)
def test_without_penalty_personal_models_are_those_of_local_training(model, participation):
    settings = {"model": model, "participation": participation}
    ditto, local = run(Ditto(0.0), **settings), run(Local(), **settings)
    assert_same_scores(ditto, local)
    assert_same_halves(ditto, local, 1, isinstance(model, GCN))


def test_only_the_global_model_travels():
    history = run(Ditto(0.7), model=None).histories[0]
    assert history.upload[-1] == history.download[-1] == 20 * 4 * MODEL_SCALARS
