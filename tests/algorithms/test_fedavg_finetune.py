"""FedAvg with fine-tuning: the rounds of FedAvg, then those of local training from the last global model."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedavg_finetune import FedAvgFinetune
from fgl_bench.algorithms.local import Local
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, assert_same_trips
from tests.algorithms.personal import assert_follows
from tests.reference import personal
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

HEAD, BODY = ("conv1",), ("conv0",)


def run(algorithm, **settings):
    federations = [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 5, "local_epochs": 2, **settings})


@pytest.mark.parametrize(("tuned", "kept", "participation"), [("all", (), 1.0), ("head", BODY, 0.5), ("body", HEAD, 1.0)])
def test_it_is_the_plain_loop(tuned, kept, participation):
    plain = lambda: personal.Finetuning(2, (), kept)  # noqa: E731
    assert_follows(lambda: FedAvgFinetune(2, tuned, 1), plain, participation=participation)


@pytest.mark.parametrize(("rounds", "other"), [(5, FedAvg), (0, Local)])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_one_stage_alone_is_fedavg_or_local_training_bit_for_bit(rounds, other, participation):
    settings = {"participation": participation, "model": GCN(hidden=4, layers=3, dropout=0.5)}
    assert_same_trips(run(FedAvgFinetune(rounds, "all", 1), **settings), run(other(), **settings), exact=True, fewest=30)


def test_clients_download_the_last_global_model_once_more_and_nothing_else():
    """Three rounds of five clients both ways, then five downloads."""
    history = run(FedAvgFinetune(3, "head", 1)).histories[0]
    assert (history.upload[-1], history.download[-1]) == (15 * 4 * MODEL_SCALARS, 20 * 4 * MODEL_SCALARS)


def test_an_untuned_part_stays_as_in_the_global_model():
    result = run(FedAvgFinetune(3, "head", 1))
    for trips in result.trips:
        (start, _), (_, end) = trips[3], trips[4]
        for name, value in result.named(start).items():
            assert torch.equal(value, result.named(end)[name]) or name.startswith(HEAD)


def test_too_many_head_layers_are_refused():
    with pytest.raises(UserError, match="head_layers=3.*0 to 2"):
        run(FedAvgFinetune(3, "all", 3))
