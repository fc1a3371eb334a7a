"""FedTGP: the plain loop, the margin and the server's loss by hand, mini-batches, and a server that stops."""

from __future__ import annotations

import math

import pytest
import torch

from fgl_bench.algorithms.fedtgp import FedTGP, contrast, margins
from tests.algorithms.test_fedproto import CLIENTS, ONE, THREE, assert_follows, run
from tests.reference import prototypes


def method(**changes):
    keys = {"weight": 2.0, "term": "nodes", "prediction": "head", "margin": "farthest", "threshold": 100.0, "server_epochs": 5}
    return FedTGP(**{**keys, "server_lr": 0.1, "server_batch": 1000, **changes})


@pytest.mark.parametrize(
    ("changes", "model", "participation"),
    [({}, ONE, 1.0), ({"margin": "nearest", "threshold": 0.2}, ONE, 0.5), ({"margin": "nearest"}, THREE, 1.0)],
)
def test_it_is_the_plain_loop(changes, model, participation):
    own = method(**changes)
    begun = run(method(**changes), rounds=0).sim.algorithm

    def server(seed):
        initial = {name: value[seed].clone() for name, value in begun.layout.views(begun.servers).items()}
        return prototypes.FedTGP(initial, own.margin, own.threshold, own.server_epochs, own.server_lr)

    assert_follows(own, server, model=model, participation=participation)


def test_the_margins_by_hand():
    """Means at 0, 1 and 4 (of 3 and 5); the last class is nobody's, and one client's prototype has not arrived."""
    uploaded = torch.tensor([[[0.0, 1.0, 3.0, 0.0], [0.0, 0.0, 5.0, 0.0], [90.0, 0.0, 0.0, 0.0]]], dtype=torch.float64)[..., None]
    present = torch.tensor([[[True, True, True, False], [False, False, True, False], [False] * 4]])
    assert margins(uploaded, present, "farthest").tolist() == [4.0]
    assert margins(uploaded, present, "nearest").tolist() == [3.0]
    present[:, :, 1:] = False
    assert margins(uploaded, present, "farthest").tolist() == margins(uploaded, present, "nearest").tolist() == [math.inf]


def test_the_servers_loss_by_hand():
    """Two points of class 0 at distances 1 and 2 from its center, 2 and 1 from the other, with a margin of 0.5; a third does not count."""
    points = torch.tensor([[[1.0], [2.0], [50.0]]], dtype=torch.float64)
    centers = torch.tensor([[[0.0], [3.0]]], dtype=torch.float64)
    loss = contrast(points, torch.tensor([[0, 0, 1]]), torch.tensor([[True, True, False]]), centers, torch.tensor([0.5]))
    each = [math.log1p(math.exp(near + 0.5 - far)) for near, far in ((1, 2), (2, 1))]
    assert loss.tolist() == pytest.approx([sum(each) / 2])
    nothing = contrast(
        points, torch.tensor([[0, 0, 1]]), torch.zeros(1, 3, dtype=torch.bool), centers, torch.tensor([math.inf]).clamp(max=1)
    )
    assert nothing.tolist() == [0.0]


def test_every_prototype_is_in_one_mini_batch_of_an_epoch(monkeypatch):
    seen = []

    def watched(points, labels, valid, *others):
        seen.append((points.clone(), valid.clone()))
        return contrast(points, labels, valid, *others)

    monkeypatch.setattr("fgl_bench.algorithms.fedtgp.contrast", watched)
    done = run(method(server_batch=4, server_epochs=1), rounds=1)
    method_, count = done.sim.algorithm, (done.sim.algorithm.counts > 0).sum((1, 2))
    assert len(seen) == -(-int(count.max()) // 4) and all(points.shape[1] <= 4 for points, _ in seen)
    for s in (0, 1):
        visited = torch.cat([points[s][valid[s]] for points, valid in seen])
        assert len(visited) == len(visited.unique(dim=0)) == count[s]
    assert method_.round == 1


def test_without_server_steps_the_prototypes_stay_those_of_the_first_network():
    algorithm = method(server_epochs=0)
    begun = run(method(), rounds=0).sim.algorithm.servers
    done = run(algorithm, rounds=2)
    assert torch.equal(done.sim.algorithm.servers, begun) and algorithm.known.all()
    assert len(done.trips) == 2 * CLIENTS
