"""FedDual: pairs, their matrix, the hypercube, noise, bytes."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.feddual import FedDual
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, UniformAverage, assert_same_trips
from tests.algorithms.peers import decentralized, run, watch_exchanges
from tests.small_runs import synchronous


def method(**changes):
    return FedDual(**{"gossip_steps": 1, "noise": 0.0, "clip": 1.0, **changes})


def exchanges(algorithm, **settings):
    seen = watch_exchanges(algorithm)
    return run(algorithm, **settings), seen


@pytest.mark.parametrize("clients", [5, 6])
def test_the_matrix_is_a_symmetric_doubly_stochastic_projection_of_pairs(clients):
    for trained, _, exchange in exchanges(method(), clients=clients)[1]:
        matrix, ones = exchange.matrix, torch.ones(2, clients, dtype=torch.float64)
        torch.testing.assert_close(matrix @ matrix, matrix)
        assert torch.equal(matrix, matrix.mT) and ((matrix > 0).sum(-1) <= 2).all()
        torch.testing.assert_close(matrix.sum(-1), ones)
        assert (matrix.diagonal(dim1=1, dim2=2) == 1).sum(1).tolist() == [clients % 2] * 2
        for s in range(2):
            for i in range(clients):
                partner = [j for j in range(clients) if j != i and matrix[s, i, j] > 0]
                expected = (trained[s, i] + trained[s, partner[0]]) / 2 if partner else trained[s, i]
                torch.testing.assert_close(exchange.models[s, i], expected, **TIGHT)


def test_pairs_are_drawn_anew():
    matrices = [exchange.matrix for *_, exchange in exchanges(method())[1]]
    assert any(not torch.equal(a, b) for a, b in zip(matrices, matrices[1:], strict=False))
    assert not all(torch.equal(matrix[0], matrix[1]) for matrix in matrices)


def test_a_round_of_the_hypercube_is_the_exact_mean():
    cube = run(method(gossip_steps=3), clients=8, scenario=decentralized(topology="hypercube"))
    assert_same_trips(cube, run(UniformAverage(), clients=8, scenario=synchronous()), fewest=80)


def test_several_meetings_make_the_product_of_their_matrices():
    algorithm, scenario = method(gossip_steps=2), decentralized()
    result, seen = exchanges(algorithm, scenario=scenario)
    for number, (trained, _, exchange) in enumerate(seen):
        first, second = (
            torch.eye(6, dtype=torch.float64) / 2 + torch.from_numpy(scenario.adjacency(result.sim, 0, 2 * number + step)) / 2
            for step in (0, 1)
        )
        torch.testing.assert_close(exchange.matrix[0], second @ first)
        torch.testing.assert_close(exchange.models, exchange.matrix @ trained, **TIGHT)


def test_noise_is_of_the_size_that_was_asked_for_and_changes_are_clipped():
    algorithm = method(noise=2.0, clip=0.1)
    result, seen = exchanges(algorithm, scenario=decentralized(topology="isolated"), lr=0.1, rounds=8)
    scalars = torch.tensor(result.sim.setting.layout.scalars())
    noise = []
    for trained, received, exchange in seen:
        change = trained - received
        norm = change.norm(dim=-1, keepdim=True)
        clipped = torch.where(norm > 0.1, change * 0.1 / norm, change)
        noise.append(exchange.models - received - clipped)
        padding = torch.ones(noise[-1].shape[-1], dtype=torch.bool)
        padding[scalars] = False
        assert not exchange.models[..., padding].any()
    noise = torch.stack(noise)[..., scalars]
    assert noise.std().item() == pytest.approx(0.2, rel=0.05) and abs(noise.mean().item()) < 5 * 0.2 / noise.numel() ** 0.5
    assert not torch.allclose(noise[0], noise[1]) and not torch.allclose(noise[:, 0, 0], noise[:, 0, 1])


def test_bytes_by_hand():
    for clients, steps, pairs in ((6, 1, 3), (5, 1, 2), (6, 4, 12)):
        history = run(method(gossip_steps=steps), clients=clients, rounds=3).histories[0]
        assert history.upload[-1] == history.download[-1] == 3 * 2 * pairs * 4 * MODEL_SCALARS
    assert run(method(), rounds=3).histories[0].busiest[-1] == 3 * 2 * 4 * MODEL_SCALARS
