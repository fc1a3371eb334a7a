"""FedBABU: the body is averaged under a head that stays as initialized, and both are fine-tuned at last."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.fedavg_finetune import FedAvgFinetune
from fgl_bench.algorithms.fedbabu import FedBABU
from fgl_bench.errors import Unsuited
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import assert_same_trips
from tests.algorithms.personal import assert_follows
from tests.reference import personal
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

HEAD, BODY = ("conv1",), ("conv0",)


def run(algorithm, **settings):
    federations = [small_federation(seed) for seed in (0, 1)]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 5, "local_epochs": 2, **settings})


@pytest.mark.parametrize(("tuned", "kept", "participation"), [("all", (), 1.0), ("all", (), 0.5), ("head", BODY, 1.0), ("body", HEAD, 1.0)])
def test_it_is_the_plain_loop(tuned, kept, participation):
    plain = lambda: personal.Finetuning(3, HEAD, kept)  # noqa: E731
    assert_follows(lambda: FedBABU(3, tuned, 1), plain, participation=participation)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_without_a_head_it_is_fedavg_with_fine_tuning_bit_for_bit(participation):
    settings = {"participation": participation, "model": GCN(hidden=4, layers=3, dropout=0.5)}
    assert_same_trips(run(FedBABU(3, "all", 0), **settings), run(FedAvgFinetune(3, "all", 1), **settings), exact=True, fewest=30)


def test_the_head_is_the_initial_one_until_it_is_tuned():
    result = run(FedBABU(3, "all", 1))
    for row, trips in enumerate(result.trips):
        first = result.named(result.sim.initial[row])
        for number, (_, trained) in enumerate(trips):
            for name, value in result.named(trained).items():
                same = torch.equal(value, first[name])
                head = name.startswith(HEAD)
                if row % 5 < 4:
                    assert same == (head and number < 3), (row, number, name)
                else:  # without training nodes; it receives averages of the body
                    assert same == (head or number == 0), (row, number, name)


def test_a_model_without_a_body_is_refused():
    with pytest.raises(Unsuited, match="more layers than algorithm.head_layers=2"):
        run(FedBABU(3, "all", 2))


def test_only_the_body_travels():
    """Three rounds of five clients both ways, then five downloads for fine-tuning."""
    history, body = run(FedBABU(3, "all", 1)).histories[0], 6 * 4 + 4
    assert (history.upload[-1], history.download[-1]) == (15 * 4 * body, 20 * 4 * body)
