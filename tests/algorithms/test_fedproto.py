"""FedProto: the plain loop, also with backbones of their own; terms and averages by hand; what travels and what is received."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedproto import TERMS, FedProto
from fgl_bench.algorithms.local import Local
from fgl_bench.engine.network import Output
from fgl_bench.errors import UserError
from fgl_bench.models._mixed import mixed
from fgl_bench.models.gat import GAT
from fgl_bench.models.gcn import GCN
from fgl_bench.models.graphsage import GraphSAGE
from tests.algorithms.comparing import assert_same_trips
from tests.reference import prototypes
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

PLAIN = {"hidden": 4, "layers": 2, "dropout": 0.0}
GATS = {"version": "v1", "heads": 1, "output_heads": 1, "act": "relu", "attn_dropout": 0.0, "head": "conv"}
ONE = GCN(**PLAIN)
THREE = mixed(gcn=ONE, gat=GAT(**PLAIN, **GATS), sage=GraphSAGE(**PLAIN))
CLIENTS = 6


def method(**changes):
    return FedProto(**{"weight": 2.0, "term": "nodes", "average": "uniform", "prediction": "head", **changes})


def run(algorithm, **settings):
    settings = {"rounds": 4, "model": ONE, **settings}
    return simulate([small_federation(seed, clients=CLIENTS) for seed in (0, 1)], algorithm, synchronous(), **settings)


def assert_follows(algorithm, server_of, *, model, participation=1.0, rounds=4, local_epochs=2):
    """Engine and plain loop train the same models in every trip."""
    done = run(algorithm, model=model, participation=participation, rounds=rounds, local_epochs=local_epochs)
    count, layout, scenario = round(participation * CLIENTS), done.sim.setting.layout, synchronous()
    for s in (0, 1):
        rows = range(s * CLIENTS, (s + 1) * CLIENTS)
        names = [getattr(layout, "names", ["gcn"] * 2 * CLIENTS)[row] for row in rows]
        initial = [{name: value[0].clone() for name, value in layout.of(row).views(done.sim.initial[row][None]).items()} for row in rows]
        chosen = None if count == CLIENTS else [np.flatnonzero(scenario.draw([s], t, count, CLIENTS)[0]).tolist() for t in range(rounds)]
        kept = {"rounds": rounds, "local_epochs": local_epochs, "weight": algorithm.weight, "term": algorithm.term, "chosen": chosen}
        trace = prototypes.run(small_federation(s, clients=CLIENTS), names, initial, server_of(s), **kept)
        trips = [iter(done.trips[row]) for row in rows]
        for trained in trace:
            for i, expected in trained.items():
                own = layout.of(rows[i]).views(next(trips[i])[1][None])
                for name, value in own.items():
                    torch.testing.assert_close(value[0], expected[name], rtol=1e-7, atol=1e-7)
        assert all(next(left, None) is None for left in trips)


@pytest.mark.parametrize(
    ("changes", "model", "participation"),
    [
        ({}, ONE, 1.0),
        ({"term": "classes", "average": "samples"}, ONE, 0.5),
        ({"term": "prototypes", "average": "openfgl"}, ONE, 1.0),
        ({}, THREE, 1.0),
        ({"term": "prototypes", "average": "samples"}, THREE, 0.5),
    ],
)
def test_it_is_the_plain_loop(changes, model, participation):
    own = method(**changes)
    assert_follows(own, lambda _: prototypes.FedProto(own.average), model=model, participation=participation)


@pytest.mark.parametrize("model", [ONE, THREE], ids=["one", "three"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_without_strength_it_is_local_training_bit_for_bit(model, participation):
    settings = {"model": model, "participation": participation}
    assert_same_trips(run(method(weight=0.0), **settings), run(Local(), **settings), exact=True, fewest=20)


def test_the_terms_by_hand():
    """Two nodes of class 0, one of class 1, whose prototype is not known, and one that is not trained on."""
    hidden = torch.tensor([[[3.0, 0.0], [1.0, 2.0], [9.0, 9.0], [5.0, 5.0]]], dtype=torch.float64)
    truth = torch.tensor([[[1, 0], [1, 0], [0, 1], [0, 0]]], dtype=torch.float64)
    centers, known = torch.tensor([[[1.0, 0.0], [7.0, 7.0]]], dtype=torch.float64), torch.tensor([[True, False]])
    squares = (4 + 0) / 2, (0 + 4) / 2
    values = {term: float(TERMS[term](hidden, truth, centers, known)) for term in TERMS}
    assert values == pytest.approx({"nodes": sum(squares) / 3, "classes": sum(squares) / 2, "prototypes": math.sqrt(2)})
    assert all(float(term(hidden, truth, centers, ~known & False)) == 0 for term in TERMS.values())


def test_a_representation_at_its_prototype_has_a_finite_gradient():
    hidden = torch.ones(1, 1, 2, dtype=torch.float64, requires_grad=True)
    everything = torch.ones(1, 1, 1, dtype=torch.float64), torch.ones(1, 1, 2, dtype=torch.float64), torch.tensor([[True]])
    for term in TERMS.values():
        (gradient,) = torch.autograd.grad(term(hidden, *everything).sum(), hidden)
        assert not gradient.any()


@pytest.mark.parametrize(
    ("average", "first", "second"),
    [("uniform", 2.0, 4.0), ("samples", (3 * 1 + 1 * 3) / 4, 4.0), ("openfgl", (4 * 1 + 4 * 3) / 9, 4 * 4 / 9)],
)
def test_the_averages_by_hand(average, first, second):
    """Three clients of sizes 4, 4 and 1; the second class has one client, and so has the third, which arrives later."""
    algorithm = run(method(average=average), rounds=0).sim.algorithm
    algorithm.counts = torch.tensor([[[3, 0, 0], [1, 2, 0], [0, 0, 1]]], dtype=torch.float64)
    algorithm.setting = type("Setting", (), {"weights": torch.tensor([[4.0, 4.0, 1.0]], dtype=torch.float64)})
    algorithm.prototypes = torch.full((1, 3, 1), 7.0, dtype=torch.float64)
    algorithm.known = torch.zeros(1, 3, dtype=torch.bool)
    uploaded = torch.tensor([[[[1.0], [0.0], [0.0]], [[3.0], [4.0], [0.0]], [[0.0], [0.0], [5.0]]]], dtype=torch.float64)
    if average != "openfgl":
        algorithm.update_prototypes(uploaded, torch.tensor([[True, True, False]]))
        assert algorithm.known.tolist() == [[True, True, False]]
    algorithm.update_prototypes(uploaded, torch.tensor([[True, True, True]]))
    assert algorithm.known.all() and algorithm.prototypes[0, :2, 0].tolist() == pytest.approx([first, second])
    before = algorithm.prototypes.clone()
    algorithm.update_prototypes(uploaded + 1, torch.tensor([[False, False, False]]))
    assert torch.equal(algorithm.prototypes, before), "without uploads nothing changes"


def test_only_prototypes_travel_and_the_first_download_is_empty():
    done = run(method(), rounds=3)
    size = 4 * 3 * 4  # bytes, classes, width
    last = done.sim.points[0][-1]
    assert (last.upload, last.download) == (3 * CLIENTS * size, 2 * CLIENTS * size)


def test_the_received_model_is_the_one_trained_last():
    done = run(method(), rounds=3, participation=0.5)
    for row, trips in enumerate(done.trips):
        before = done.sim.initial[row]
        for received, trained in trips:
            assert torch.equal(received, before)
            before = trained
    history = run(method(), rounds=3).histories[0]
    assert np.array_equal(history.scores["received"][1:], history.scores["trained"][1:])


def test_the_nearest_known_prototype_answers():
    algorithm = method(prediction="prototypes")
    batch = run(algorithm, rounds=2).sim.setting.batch
    algorithm.prototypes = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64).expand(2, 3, 4).clone()
    algorithm.known = torch.tensor([[True, False, True], [False, False, False]])
    hidden = torch.tensor([0.1, 0.9, 1.1, 3.0], dtype=torch.float64)[None, :, None].expand(batch.size, 4, 4)
    head = torch.rand(batch.size, 4, 3, dtype=torch.float64)
    logits = algorithm._answer(Output(hidden, head), batch)
    assert logits[:CLIENTS].argmax(-1).tolist() == [[0, 0, 2, 2]] * CLIENTS
    assert torch.equal(logits[CLIENTS:], head[CLIENTS:]), "the head answers until there is a prototype"


def test_widths_that_differ_are_refused():
    model = mixed(gcn=ONE, wide=GCN(hidden=5, layers=2, dropout=0.0))
    with pytest.raises(UserError, match="prototypes need one width before the last layer, not 4, 5"):
        run(method(), model=model)
    assert run(Local(), model=model, rounds=1).trips
