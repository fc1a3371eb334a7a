"""Drawn edges and non-edges, and the decoder's loss against a loop."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from fgl_bench.algorithms._vgae import UndirectedEdges, drawn_pairs, reconstruction
from fgl_bench.data.graph import training_view
from fgl_bench.engine.batch import Batch
from tests.engine.graphs import from_edges, make_client

CLIENTS = [make_client(8, seed=1), from_edges([], [0, 0, 0], features=torch.zeros(3, 5).numpy()), make_client(15, edges=0.6, seed=2)]
KEYS = torch.tensor([3, 4, 5])


def links(clients=CLIENTS):
    return UndirectedEdges.of(Batch(clients, torch.float64, "cpu"))


def pairs_of(client):
    return {(int(u), int(v)) for u, v in client.edges.T if u < v}


def test_all_edges_are_taken_where_they_are_few():
    edges = links()
    assert edges.count.tolist() == [len(pairs_of(client)) for client in CLIENTS]
    positive, real, negative, unreal = drawn_pairs(edges, 1000, KEYS)
    for i, client in enumerate(CLIENTS):
        assert {tuple(pair) for pair in positive[i][real[i]].tolist()} == pairs_of(client)
        drawn = negative[i][unreal[i]].tolist()
        assert all(0 <= u < v < client.num_nodes and (u, v) not in pairs_of(client) for u, v in drawn)
    assert not real[1].any() and not unreal[1].any()
    # The dense client's draws hit edges more often than not; those are dropped.
    assert 0 < unreal[2].sum() < real[2].sum() and unreal[0].sum() > 0


def test_nodes_that_are_not_there_are_in_no_pair():
    whole = make_client(20, 0.3, seed=3)
    seen = training_view(whole, np.arange(20) % 3 == 0)
    edges = links([seen, CLIENTS[0]])
    assert edges.nodes.tolist() == [7, 8]
    drawn = torch.cat([drawn_pairs(edges, 1000, torch.tensor([key, 1]))[2][0] for key in range(50)])
    assert set(drawn.flatten().tolist()) == set(np.flatnonzero(seen.present).tolist())


def test_many_edges_are_drawn_evenly():
    edges, counts = links(), torch.zeros(15, 15)
    for key in range(300):
        positive, real, _, _ = drawn_pairs(edges, 10, torch.tensor([key] * 3))
        assert real.sum(1).tolist() == [min(10, int(count)) for count in edges.count]
        for u, v in positive[2].tolist():
            counts[u, v] += 1
    found = {(u, v) for u, v in counts.nonzero().tolist()}
    assert found == pairs_of(CLIENTS[2])
    mean = 3000 / len(found)
    assert all(0.3 * mean < counts[pair] < 2 * mean for pair in found)


def test_the_loss_is_that_of_a_loop_and_zero_without_edges():
    edges = links()
    z = torch.randn(3, 15, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    losses = reconstruction(z, edges, 1000, KEYS)
    positive, real, negative, unreal = drawn_pairs(edges, 1000, KEYS)
    for i in range(3):
        terms = []
        for pairs, counts, truth in ((positive, real, 1.0), (negative, unreal, 0.0)):
            each = [
                F.binary_cross_entropy_with_logits(z[i, u] @ z[i, v], torch.tensor(truth, dtype=torch.float64))
                for (u, v), counted in zip(pairs[i].tolist(), counts[i], strict=True)
                if counted
            ]
            terms.append(torch.stack(each).mean() if each else torch.zeros((), dtype=torch.float64))
        torch.testing.assert_close(losses[i], sum(terms))
    assert losses[1] == 0


def test_draws_depend_on_the_replicas_key_and_edges_only():
    whole = drawn_pairs(links(), 10, KEYS)
    alone = drawn_pairs(links(CLIENTS[2:]), 10, KEYS[2:])
    part = drawn_pairs(links().select(torch.tensor([2])), 10, KEYS[2:])
    for all_, one, cut in zip(whole, alone, part, strict=True):
        assert torch.equal(all_[2:], one) and torch.equal(one, cut)
