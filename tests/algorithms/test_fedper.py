"""FedPer: a common base and personal heads, and the two methods at its ends."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedper import FedPer
from fgl_bench.algorithms.local import Local
from fgl_bench.engine.mixing import normalize
from fgl_bench.errors import UserError
from fgl_bench.models.gamlp import GAMLP
from fgl_bench.models.gcn import GCN
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.models.mlp import MLP
from fgl_bench.models.sign import SIGN
from fgl_bench.models.unifilter import UniFilter
from tests.algorithms.comparing import TIGHT, assert_same_trips
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

MODELS = [GCN(hidden=4, layers=3, dropout=0.5), GCN(hidden=4, layers=2, dropout=0.5, head="linear"), GraphSAGE(4, 2, 0.5)]


def run(method, **settings):
    return simulate([small_federation(seed) for seed in (0, 1)], method, synchronous(), **{"rounds": 4, "model": MODELS[0], **settings})


@pytest.mark.parametrize(("model", "participation"), list(zip(MODELS, (1.0, 0.6, 1.0), strict=True)))
def test_without_personal_layers_it_is_fedavg_bit_for_bit(model, participation):
    settings = {"model": model, "participation": participation}
    assert_same_trips(run(FedPer(personal_layers=0), **settings), run(FedAvg(), **settings), exact=True, fewest=24)


def test_with_nothing_but_personal_layers_it_is_local_training_bit_for_bit():
    assert_same_trips(run(FedPer(personal_layers=3)), run(Local()), exact=True, fewest=40)


@pytest.mark.parametrize(
    ("model", "count", "heads", "participation"), [(MODELS[0], 2, {"conv1", "conv2"}, 1.0), (MODELS[1], 1, {"head"}, 0.6)]
)
def test_everybody_receives_the_average_base_and_keeps_the_head_it_trained(model, count, heads, participation):
    result = run(FedPer(personal_layers=count), model=model, participation=participation, rounds=5)
    clients, present = 5, round(5 * participation)
    for s in (0, 1):
        weights, latest = result.sim.setting.weights[s], [result.sim.initial[s * clients + i] for i in range(clients)]
        average, trips = result.named(result.sim.initial[s * clients]), [iter(result.trips[s * clients + i]) for i in range(clients)]
        for number in range(5):
            chosen = synchronous().draw([s], number, present, clients)[0] if present < clients else [True] * clients
            share = normalize(weights, torch.tensor(chosen))
            done = {i: next(trips[i]) for i in range(clients) if chosen[i]}
            for i, (received, trained) in done.items():
                for name, value in result.named(received).items():
                    if name.partition(".")[0] in heads:
                        assert torch.equal(value, result.named(latest[i])[name])
                    else:
                        torch.testing.assert_close(value, average[name], **TIGHT)
                latest[i] = trained
            average = {name: sum(share[i] * result.named(done[i][1])[name] for i in done) for name in average}


def test_only_the_base_travels():
    history = run(FedPer(personal_layers=1)).histories[0]
    base = 6 * 4 + 4 + 4 * 4 + 4
    assert history.upload[-1] == history.download[-1] == 20 * 4 * base


def test_too_many_personal_layers_are_refused():
    with pytest.raises(UserError, match="personal_layers=4.*0 to 3"):
        run(FedPer(personal_layers=4))


LAST = [
    (GAMLP("auto", 2, 4, 2, 0.5), {"linear1.weight", "linear1.bias"}),
    (SIGN("auto", 2, 4, 2, 0.5), {"linear1.weight", "linear1.bias"}),
    (UniFilter(2, 0.5, 4, 2, 0.5, 0.0, 0.0, "exact", "client", 0.5, False, None, None), {"mlp1.weight"}),
    (MLP(4, 2, 0.5), {"linear1.weight", "linear1.bias"}),
]


@pytest.mark.parametrize(("model", "head"), LAST, ids=lambda x: type(x).__name__)
def test_the_personal_layer_is_the_classifier_whatever_the_network_lists_last(model, head):
    """Weights of hops, filters and slopes stand behind the classifier in the layout, but before it in the network."""
    method = FedPer(personal_layers=1)
    result = run(method, model=model, rounds=2)
    assert set(result.sim.setting.layout.shapes) - set(method.shared) == head
    (_, trained), (received, _) = result.trips[0]
    for name, value in result.named(received).items():
        assert torch.equal(value, result.named(trained)[name]) == (name in head)
