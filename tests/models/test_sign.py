"""SIGN; its equality with PyG's transform is in test_decoupled.py."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.errors import UserError
from fgl_bench.models.sign import SIGN
from tests.engine.graphs import make_client
from tests.models.checking import CLASSES, EXACT, FEATURES, features_of, random_models, run
from tests.reference.decoupled import gcn_matrix


def test_hop_k_is_k_times_the_propagation_with_self_loops():
    clients = [make_client(9), make_client(1), make_client(4, edges=0.0)]
    batch = Batch(clients, torch.float64, "cpu")
    made = batch.derived(SIGN("precomputed", 3, 4, 2, 0.0).hop_matrices()).stacked()
    for i, client in enumerate(clients):
        n, wanted = client.num_nodes, features_of(client)
        for hop in range(4):
            torch.testing.assert_close(made[i, hop, :n], wanted, **EXACT)
            assert not made[i, hop, n:].any()
            wanted = gcn_matrix(torch.from_numpy(client.edges), n) @ wanted


@pytest.mark.parametrize("mode", ["lazy", "precomputed"])
def test_each_hop_meets_its_own_weight(mode):
    batch, model = Batch([make_client(8)], torch.float64, "cpu"), SIGN(mode, 2, 4, 2, 0.0)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    before = model.first(layout.views(theta), batch)
    layout.view(theta, "hops.weight")[..., 4:8] += 1
    after = model.first(layout.views(theta), batch)
    same = (before == after).all(1)[0]
    assert same[:4].all() and same[8:].all() and not same[4:8].any()


def test_dropout_acts_on_the_joined_activations_and_between_layers():
    seen = []

    def spy(x):
        seen.append(tuple(x.shape))
        return x

    model = SIGN("lazy", 2, 4, 3, 0.5)
    layout = model.layout(FEATURES, CLASSES)
    output = run(model, Batch([make_client(8)], torch.float64, "cpu"), random_models(layout, 1), layout, spy)[1]
    assert seen == [(1, 8, 12), (1, 8, 4)] and output.hidden.shape == (1, 8, 4)


def test_weights_of_a_hop_are_drawn_as_a_layer_of_their_own():
    layout = SIGN("auto", 3, 64, 2, 0.5).layout(500, 7)
    initial = SIGN("auto", 3, 64, 2, 0.5).init_parameters(layout, torch.Generator().manual_seed(0))
    bound = 2**0.5 * (6 / (500 + 64)) ** 0.5
    assert 0.99 * bound < initial["hops.weight"].abs().max() <= bound
    assert initial["slope"].item() == 0.25 and not initial["hops.bias"].any()


def test_refuses_a_single_layer():
    with pytest.raises(UserError, match="model.layers=1"):
        SIGN("auto", 3, 64, 1, 0.5)
