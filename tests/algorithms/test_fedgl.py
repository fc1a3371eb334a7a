"""FedGL: against a plain loop, what is fused and handed back, the limits in which it is FedAvg, what travels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedgl import Extended, FedGL, PseudoEdges, Union, nearest
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.errors import UserError
from fgl_bench.models.unifilter import UniFilter
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.stateful import assert_follows
from tests.reference.small import small_federation
from tests.reference.stateful import descend, gradient_of, load, mean
from tests.reference.training import normalize
from tests.small_runs import simulate, synchronous

KEYS = {"strategy": None, "weight": 0.7, "confidence": 0.4, "fusion": "samples", "refresh": 1, "pseudo_graph": 0.0, "neighbours": 4}


def method(**changes):
    return FedGL(**{**KEYS, **changes})


def overlapping(seed=0, clients=6, sparse=False):
    """A small federation of which neighbouring clients share up to five nodes."""
    plain, held, first = small_federation(seed, clients=clients, sparse=sparse), [], 0
    for client in plain.clients:
        held.append(replace(client, nodes=np.arange(first, first + client.num_nodes)))
        first += client.num_nodes - 5
    return replace(plain, clients=tuple(held), observed=tuple(held))


def run(algorithm, seeds=(0, 1), federations=None, **settings):
    federations = federations or [overlapping(seed) for seed in seeds]
    return simulate(federations, algorithm, synchronous(), **{"rounds": 4, **settings})


class Plain:
    """FedGL one client and one node after the other, with dense matrices; a fresh one for every federation."""

    def __init__(self, nodes, **changes):
        self.nodes, self.keys = [ids.tolist() for ids in nodes], {**KEYS, **changes}

    def start(self, clients, initial):
        self.round, self.fused, self.hidden, self.graph = 0, {}, {}, None

    def forward(self, i, client):
        """(hidden, logits)"""
        loops = client.observed.adjacency() + torch.eye(client.num_nodes, dtype=torch.float64)
        scale = loops.sum(1).rsqrt()
        operator = scale[:, None] * loops * scale
        if self.graph is not None:
            at = [self.order.index(v) for v in self.nodes[i]]
            operator = operator + self.keys["pseudo_graph"] * self.graph[at][:, at]
        one, two = client.model.convs
        hidden = functional.relu(operator @ (client.observed.x.to_dense() @ one.lin.weight.T) + one.bias)
        return hidden, operator @ (hidden @ two.lin.weight.T) + two.bias

    def trip(self, i, client, w, epochs):
        load(client, w)
        for _ in range(epochs):
            graph, (_, logits) = client.observed, self.forward(i, client)
            loss = functional.cross_entropy(logits[graph.train], graph.y[graph.train])
            pseudo = [
                (p, int(self.fused[v].argmax()))
                for p, v in enumerate(self.nodes[i])
                if not graph.train[p] and v in self.fused and self.fused[v].sum() > 0
            ]
            if pseudo:
                at, labels = zip(*pseudo, strict=True)
                loss = loss + self.keys["weight"] * functional.cross_entropy(logits[list(at)], torch.tensor(labels))
            descend(client, gradient_of(client, loss))

    def aggregate(self, chosen, clients, w, trained):
        shares = normalize([float(clients[i].num_train) for i in chosen])
        if self.round % self.keys["refresh"] == 0:
            sent = {}
            for i, share in zip(chosen, shares, strict=True):
                load(clients[i], trained[i])
                with torch.no_grad():
                    hidden, logits = self.forward(i, clients[i])
                soft = logits.softmax(1)
                soft = torch.where(soft < self.keys["confidence"], 0.0, soft)
                r = share if self.keys["fusion"] == "samples" else 1.0
                for p, v in enumerate(self.nodes[i]):
                    sent.setdefault(v, []).append((r, soft[p], hidden[p]))
            for v, found in sent.items():
                total = sum(r for r, _, _ in found)
                if total > 0:
                    self.fused[v] = sum(r * p for r, p, _ in found) / total
                    self.hidden[v] = sum(r * h for r, _, h in found) / total
            if self.keys["pseudo_graph"]:
                self.graph = self.pseudo()
        self.round += 1
        return mean([trained[i] for i in chosen], shares)

    def pseudo(self):
        self.order = sorted({v for ids in self.nodes for v in ids})
        width = next(iter(self.hidden.values())).shape[0]
        rows = torch.stack([self.hidden.get(v, torch.zeros(width, dtype=torch.float64)) for v in self.order])
        similar = (rows @ rows.T).clamp(min=0)
        for row in similar:
            row[row.argsort(descending=True, stable=True)[self.keys["neighbours"] :]] = 0
        similar = similar / similar.sum(1, keepdim=True).clamp(min=1e-12)
        similar.fill_diagonal_(1.0)
        scale = similar.sum(1).rsqrt()
        return scale[:, None] * similar * scale


@pytest.mark.parametrize(
    ("changes", "participation"),
    [({"refresh": 2}, 1.0), ({"fusion": "uniform"}, 0.5), ({"pseudo_graph": 0.3}, 1.0),
     ({"pseudo_graph": 0.3, "weight": 0.0, "refresh": 2}, 0.5)],
)  # fmt: skip
def test_it_follows_the_plain_loop(changes, participation):
    federations = [overlapping(seed, sparse=seed == 1) for seed in (0, 1)]
    left = iter(federations)
    assert_follows(
        lambda: method(**changes),
        lambda: Plain([client.nodes for client in next(left).clients], **changes),
        participation=participation, federations=federations, local_epochs=2, tolerance=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize(("changes", "participation"), [({"weight": 0.0}, 1.0), ({"confidence": 1.01}, 0.5)])
def test_without_pseudo_labels_it_is_fedavg(changes, participation):
    left, right = (run(m, participation=participation, local_epochs=2) for m in (method(**changes), FedAvg()))
    assert_same_trips(left, right, fewest=24)


# ---- fusion


# ---- the pseudo graph


def test_rows_of_the_pseudo_graph():
    rows = torch.randn(2, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    column, value = nearest(rows, 4)
    dense = torch.zeros(2, 9, 9, dtype=torch.float64).scatter_add(2, column, value)
    for s in range(2):
        plain = Plain([np.arange(9)], neighbours=4)
        plain.hidden = dict(enumerate(rows[s]))
        torch.testing.assert_close(dense[s], plain.pseudo(), **TIGHT)


def test_products_with_pseudo_edges_and_their_gradient():
    column = torch.tensor([[[0, 2], [1, 1], [0, 0]], [[2, 1], [0, 0], [2, 2]]])
    value = torch.tensor([[[0.5, 2.0], [1.0, 0.0], [3.0, 0.0]], [[1.0, 1.0], [0.0, 0.0], [0.5, 0.5]]], dtype=torch.float64)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    dense = torch.zeros(2, 3, 3, dtype=torch.float64).scatter_add(2, column, value)
    torch.testing.assert_close(PseudoEdges(column, value) @ x, dense @ x)
    assert torch.autograd.gradcheck(lambda y: PseudoEdges(column, value) @ y, (x,))


def test_parts_of_an_extended_batch():
    batch = Batch(overlapping().clients, torch.float64, "cpu")
    union = Union(batch, 1)
    graph = union.restrict(*nearest(torch.rand(1, union.nodes, 3, dtype=torch.float64), 5))
    whole, x = Extended(batch, graph), torch.rand(batch.size, batch.nodes, 2, dtype=torch.float64)
    part = whole.select([4, 1])
    torch.testing.assert_close(part.operator(gcn_operator) @ x[[4, 1]], (whole.operator(gcn_operator) @ x)[[4, 1]])
    assert torch.equal(part.labels, batch.labels[[4, 1]])
    with pytest.raises(UserError, match="pseudo_graph"):
        _ = whole.operator(gcn_operator).edges


def test_a_model_that_needs_its_graphs_beforehand_is_refused():
    model = UniFilter(2, 0.5, 4, 2, 0.0, 0.0, 0.0, "exact", "client", 0.5, False, None, None)
    run(method(pseudo_graph=0.0), model=model, rounds=2)
    with pytest.raises(UserError, match="algorithm.pseudo_graph=0"):
        run(method(pseudo_graph=0.2), model=model, rounds=2)


# ---- what travels


def test_bytes_by_hand():
    federations = [overlapping(seed) for seed in (0, 1)]
    nodes = [sum(c.num_nodes for c in f.clients) for f in federations]
    for refresh, (ups, downs) in {1: (4, 3), 2: (2, 2), 3: (2, 1)}.items():
        result = run(method(refresh=refresh), federations=federations)
        for history, count in zip(result.histories, nodes, strict=True):
            assert history.upload[-1] == 4 * (24 * MODEL_SCALARS + count + ups * 3 * count)
            assert history.download[-1] == 4 * (24 * MODEL_SCALARS + downs * 2 * count)
            assert history.upload[0] == history.download[0] == 0


def test_bytes_of_the_pseudo_graph():
    federations = [overlapping(0)]
    algorithm = method(weight=0.0, pseudo_graph=0.2)
    history = run(algorithm, federations=federations).histories[0]
    count = sum(c.num_nodes for c in federations[0].clients)
    edges = sum(int(found[0]) for found in algorithm.entries[:3])
    assert history.upload[-1] == 4 * (24 * MODEL_SCALARS + count + 4 * 4 * count)
    assert history.download[-1] == 4 * (24 * MODEL_SCALARS + 2 * edges)
    assert 3 * count < edges <= 3 * count * 5, "at least the diagonal, at most a row of neighbours and it"
