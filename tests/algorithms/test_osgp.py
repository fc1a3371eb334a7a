"""OSGP: mass is conserved, biases go, messages by hand, overlap, bytes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.d_psgd import DPSGD
from fgl_bench.algorithms.osgp import OSGP
from fgl_bench.engine.shard import ALONE
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.peers import decentralized, meeting, run, watch_exchanges


def irregular(time, clients=7, seed=0):
    """A directed graph that is strongly connected (it holds a ring) and in which degrees differ."""
    rng = np.random.default_rng([seed, time])
    heard = rng.random((clients, clients)) < 0.25
    heard[np.arange(clients), np.arange(clients) - 1] = True
    np.fill_diagonal(heard, False)
    return torch.from_numpy(heard)[None]


def prepared(overlap, clients=7):
    algorithm = OSGP(overlap=overlap)
    weights = torch.ones(1, clients, dtype=torch.float64)
    algorithm.prepare(SimpleNamespace(weights=weights, layout=SimpleNamespace(count=5), shard=ALONE))
    return algorithm


def start(clients=7):
    return torch.randn(1, clients, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def toy_training(z, t):
    """Any function of the client, its model and the round."""
    return 0.9 * z + torch.sin(3 * z + t) / 10


@pytest.mark.parametrize("overlap", [True, False])
def test_weights_sum_to_the_number_of_clients_and_the_mean_moves_by_the_mean_change(overlap):
    algorithm, z = prepared(overlap), start()
    total = z.sum(1)
    for t in range(30):
        trained = toy_training(z, t)
        total = total + (trained - z).sum(1)
        exchange = algorithm.exchange(meeting(trained, number=t, received=z, heard=irregular))
        z = exchange.models
        assert algorithm.shares.sum().item() == pytest.approx(7, abs=1e-12) and algorithm.shares.min() > 1e-6
        torch.testing.assert_close(algorithm.numerators.sum(1), total)
        torch.testing.assert_close(algorithm.numerators / algorithm.shares[..., None], z)
        torch.testing.assert_close(exchange.matrix.sum(-1), torch.ones(1, 7, dtype=torch.float64))
    assert algorithm.shares.std() > 1e-2, "irregular graphs make weights differ"


def test_messages_one_round_late_are_the_recursion():
    """In-boxes, shares put in flight before training, the change added to what was kept."""
    algorithm, z = prepared(True), start()
    x, w = [row.clone() for row in z[0]], [1.0] * 7
    inbox = [[] for _ in range(7)]
    for t in range(25):
        flying, kept = [[] for _ in range(7)], []
        heard = irregular(t)[0]
        for i in range(7):
            for share, weight in inbox[i]:
                x[i], w[i] = x[i] + share, w[i] + weight
        assert sum(w) == pytest.approx(7)
        for i in range(7):
            debiased = x[i] / w[i]
            torch.testing.assert_close(debiased, z[0, i], rtol=1e-9, atol=1e-9)
            out = torch.nonzero(heard[:, i])[:, 0].tolist()
            p = 1 / (1 + len(out))
            for j in out:
                flying[j].append((p * x[i], p * w[i]))
            torch.testing.assert_close(p * x[i] / (p * w[i]), debiased)
            kept.append((p * x[i] + toy_training(debiased, t) - debiased, p * w[i]))
        x, w, inbox = [a for a, _ in kept], [b for _, b in kept], flying
        z = algorithm.exchange(meeting(toy_training(z, t), number=t, received=z, heard=irregular)).models


@pytest.mark.parametrize("overlap", [True, False])
def test_without_training_everybody_reaches_the_unweighted_mean(overlap):
    algorithm, z = prepared(overlap), start()
    mean = z.mean(1, keepdim=True)
    biased = z
    for t in range(60):
        z = algorithm.exchange(meeting(z, number=t, received=z, heard=irregular)).models
        support = (irregular(t) | torch.eye(7, dtype=torch.bool)).double()
        biased = support / support.sum(-1, keepdim=True) @ biased
    torch.testing.assert_close(z, mean.expand_as(z), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(biased, mean.expand_as(z), rtol=1e-2, atol=1e-2), "averaging by receivers ends elsewhere"


@pytest.mark.parametrize("topology", ["one_peer_exponential", "ring"])
def test_on_regular_graphs_it_is_d_psgd(topology):
    scenario = decentralized(topology=topology)
    for overlap, order in ((False, "train_mix"), (True, "lian")):
        algorithm = OSGP(overlap=overlap)
        push = run(algorithm, scenario=scenario)
        assert_same_trips(push, run(DPSGD(weights="uniform", order=order), scenario=scenario), fewest=60)
        torch.testing.assert_close(algorithm.shares, torch.ones(2, 6, dtype=torch.float64))


def test_failing_links_lose_no_mass():
    algorithm = OSGP(overlap=True)
    seen = watch_exchanges(algorithm)
    run(algorithm, scenario=decentralized(topology="random_k_out", link_failure=0.4))
    torch.testing.assert_close(algorithm.shares.sum(1), torch.full((2,), 6.0, dtype=torch.float64))
    total = seen[0][1].sum(1) + sum((trained - received).sum(1) for trained, received, _ in seen)
    torch.testing.assert_close(algorithm.numerators.sum(1), total, **TIGHT)


def test_bytes_by_hand():
    history = run(OSGP(overlap=True), rounds=3).histories[0]
    assert history.upload[-1] == 3 * 6 * 4 * (MODEL_SCALARS + 1) and history.busiest[-1] == 3 * 2 * 4 * (MODEL_SCALARS + 1)
