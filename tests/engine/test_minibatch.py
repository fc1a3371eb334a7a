"""Mini-batches over nodes: every client in an order of its own, equal to a plain loop over its batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.local import Local
from fgl_bench.algorithms.scaffold import Scaffold
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.minibatch import Epochs, order_key
from fgl_bench.engine.random_numbers import step_key
from fgl_bench.models.gamlp import GAMLP
from fgl_bench.models.mlp import MLP
from fgl_bench.models.sgc import SGC
from fgl_bench.models.sign import SIGN
from tests.algorithms.batching import assert_batching_changes_nothing
from tests.engine.graphs import make_client
from tests.models.checking import features_of
from tests.reference import decoupled as plain
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

SAME = {"rtol": 1e-6, "atol": 1e-6}  # Adam blows up rounding where a gradient is nearly zero, as an attention bias has it


def test_an_epoch_meets_every_training_node_once_in_an_order_that_padding_does_not_change():
    clients = [make_client(13), make_client(30, seed=1), make_client(1)]
    batch, key = Batch(clients, torch.float64, "cpu"), torch.tensor([5, 6, 7])
    epochs = Epochs(batch, 4)
    order = epochs.order(batch, key)
    parts = [epochs.part(batch, order, step) for step in range(epochs.steps)]
    for i, client in enumerate(clients):
        met = np.concatenate([part.index[i, : part.num_train[i]].numpy() for part in parts])
        assert sorted(met) == np.flatnonzero(client.train).tolist()
        alone = Batch([client], torch.float64, "cpu")
        if client.train.any():
            mine = Epochs(alone, 4).order(alone, key[i : i + 1])[0]
            assert mine.tolist() == met.tolist()
    assert met.size < 2 or order[1].tolist() != sorted(order[1].tolist())
    assert all((part.num_train <= 4).all() for part in parts)
    assert epochs.taken[:, 0].tolist() == [max(1, -(-int(client.train.sum()) // 4)) for client in clients]


def test_the_loss_of_a_part_is_the_mean_over_its_nodes():
    batch = Batch([make_client(13), make_client(30, seed=1)], torch.float64, "cpu")
    epochs = Epochs(batch, 4)
    order = epochs.order(batch, torch.tensor([1, 2]))
    for step in range(epochs.steps):
        part = epochs.part(batch, order, step)
        owner = part.training_nodes.index // part.nodes
        for i, count in enumerate(part.num_train):
            assert part.training_nodes.weights[owner == i].tolist() == pytest.approx([1 / count] * count if count else [])
        assert torch.equal(part.labels, batch.labels.gather(1, part.index))
        assert torch.equal(part.training_nodes.labels, part.labels.flatten()[part.training_nodes.index])
        for take in (part.operator, part.select):
            with pytest.raises(RuntimeError, match="mini-batch"):
                take(None)


@pytest.mark.parametrize("mode", ["lazy", "precomputed"])
@pytest.mark.parametrize(
    ("make", "reference", "options"),
    [
        (lambda mode: SGC(mode, 2), plain.sgc, {"count": 2}),
        (lambda mode: SIGN(mode, 2, 4, 2, 0.0), plain.sign, {"count": 2, "layers": 2}),
        (lambda mode: GAMLP(mode, 2, 4, 2, 0.0), plain.gamlp, {"count": 2, "layers": 2}),
        (lambda mode: MLP(4, 2, 0.0), plain.mlp, {"layers": 2}),
    ],
)
def test_trips_equal_a_plain_loop_over_the_same_batches(make, reference, options, mode):
    federation = small_federation(0)
    run = simulate([federation], Local(), synchronous(), rounds=2, local_epochs=2, batch_nodes=2, model=make(mode))
    trainer, layout = run.sim.trainer, run.sim.setting.layout
    for i, client in enumerate(federation.clients):
        named = {name: view[i].clone().requires_grad_() for name, view in layout.views(run.sim.initial).items()}
        adam = torch.optim.Adam(named.values(), lr=0.01, weight_decay=5e-4)
        x, edges, labels = features_of(client).double(), torch.from_numpy(client.edges), torch.from_numpy(client.labels)
        alone = Batch([client], torch.float64, "cpu")
        for trip in range(2):
            for epoch in range(2 if client.train.any() else 0):
                key = order_key(step_key(trainer.streams[i : i + 1], torch.tensor([trip]), epoch))
                for nodes in Epochs(alone, 2).order(alone, key)[0].split(2):
                    adam.zero_grad()
                    functional.cross_entropy(reference(named, x, edges, **options)[nodes], labels[nodes]).backward()
                    adam.step()
            for name, tensor in run.named(run.trips[i][trip][1]).items():
                torch.testing.assert_close(tensor, named[name].detach(), **SAME)


@pytest.mark.parametrize("mode", ["lazy", "precomputed"])
def test_batches_that_hold_everything_are_the_full_batch(mode):
    runs = [
        simulate([small_federation(0)], FedAvg(), synchronous(), local_epochs=2, model=SIGN(mode, 2, 4, 2, 0.0), batch_nodes=size)
        for size in (None, 1000)
    ]
    for full, other in zip(*(run.trips for run in runs), strict=True):
        for (_, one), (_, two) in zip(full, other, strict=True):
            torch.testing.assert_close(one, two, **SAME)


@pytest.mark.parametrize("method", [FedAvg, lambda: Scaffold(1.0, "mean_gradient", "uniform")])
@pytest.mark.parametrize("mode", ["lazy", "precomputed"])
def test_batching_changes_nothing(method, mode):
    assert_batching_changes_nothing(method, synchronous, model=GAMLP(mode, 2, 4, 2, 0.5), batch_nodes=3)


def test_scaffold_divides_by_the_steps_that_a_client_took():
    # With SGD-sized steps out of the way: the variate is the mean gradient, of as many steps as the client has batches.
    federation = small_federation(0)
    run = simulate(
        [federation], Scaffold(1.0, "mean_gradient", "uniform"), synchronous(), rounds=1, model=SGC("lazy", 0), lr=1e-12, batch_nodes=2
    )
    full = simulate([federation], Scaffold(1.0, "mean_gradient", "uniform"), synchronous(), rounds=1, model=SGC("lazy", 0), lr=1e-12)
    for i, client in enumerate(federation.clients):
        if client.train.sum() % 2 == 0:  # equal batches: the mean of their means is the mean
            ours, theirs = run.sim.algorithm.variates[0, i], full.sim.algorithm.variates[0, i]
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


def test_parts_of_clients_with_several_labels_a_node_have_their_rows():
    rng = np.random.default_rng(0)
    clients = [replace(make_client(n, seed=n), labels=(rng.random((n, 3)) < 0.5).astype(np.float32)) for n in (9, 6)]
    batch = Batch(clients, torch.float64, "cpu")
    epochs = Epochs(batch, 2)
    order = epochs.order(batch, torch.tensor([3, 4]))
    seen = [0, 0]
    for step in range(epochs.steps):
        part = epochs.part(batch, order, step)
        place = part.training_nodes.index
        nodes = part.index.flatten()[place]
        assert torch.equal(part.training_nodes.labels, batch.labels[place // part.nodes, nodes])
        seen = [count + int((place // part.nodes == i).sum()) for i, count in enumerate(seen)]
    assert seen == batch.num_train.tolist()
