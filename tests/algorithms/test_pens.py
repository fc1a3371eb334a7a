"""PENS: losses by hand, the best peers, planted clusters, limits, bytes of both phases."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.local import Local
from fgl_bench.algorithms.pens import PENS
from fgl_bench.engine.dropout import no_dropout
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.peers import alike, decentralized, run, watch_exchanges
from tests.small_runs import synchronous


def method(**changes):
    return PENS(**{"sampled": None, "selected": 2, "first_phase": 1.0, "gossip_peers": None, "weighting": "samples", **changes})


def watch_losses(algorithm):
    seen, losses = [], algorithm._losses

    def recording(meeting, received):
        result = losses(meeting, received)
        seen.append((meeting.trained.clone(), received.clone(), result.clone()))
        return result

    algorithm._losses = recording
    return seen


def test_losses_are_those_of_each_sampled_model_on_the_own_training_nodes():
    algorithm = method(sampled=3)
    seen = watch_losses(algorithm)
    setting = run(algorithm, rounds=2).sim.setting
    batch, layout, model = setting.batch, setting.layout, setting.model
    for trained, received, losses in seen:
        assert (received.sum(-1)[:, :-1] == 3).all() and not received.diagonal(dim1=1, dim2=2).any()
        assert losses.isinf().equal(~received)
        for s, i, j in received.nonzero().tolist():
            row = s * 6 + i
            part, parameters = batch.select([row]), layout.views(trained[s, j][None])
            logits = model.forward(parameters, part, model.first(parameters, part), no_dropout).logits[0]
            expected = cross_entropy(logits[batch.train[row]], batch.labels[row][batch.train[row]])
            torch.testing.assert_close(losses[s, i, j], expected, **TIGHT)


def test_the_own_model_is_averaged_with_the_best():
    algorithm = method(sampled=4, selected=2)
    exchanges, losses = watch_exchanges(algorithm), watch_losses(algorithm)
    sizes = run(algorithm).sim.setting.weights
    for (trained, _, exchange), (_, _, loss) in zip(exchanges, losses, strict=True):
        torch.testing.assert_close(exchange.matrix.sum(-1), torch.ones(2, 6, dtype=torch.float64))
        for s in range(2):
            for i in range(5):
                best = loss[s, i].argsort()[:2].tolist()
                expected = torch.zeros(6, dtype=torch.float64)
                expected[[i, *best]] = sizes[s, [i, *best]] / sizes[s, [i, *best]].sum()
                torch.testing.assert_close(exchange.matrix[s, i], expected)
            assert exchange.matrix[s, 5].tolist() == [0, 0, 0, 0, 0, 1], "no training nodes, nothing to rank with"
        torch.testing.assert_close(exchange.models, exchange.matrix @ trained, **TIGHT)


def test_choosing_everybody_is_fedavg():
    same = [alike(clients=5, seed=seed) for seed in (0, 1)]
    everybody = run(method(selected=4), federations=same)
    assert_same_trips(everybody, run(FedAvg(), federations=same, scenario=synchronous()), fewest=50)


def test_counts_stop_with_the_first_phase_and_bytes_fall():
    algorithm = method(sampled=5, first_phase=0.5)
    history = run(algorithm, rounds=8).histories[0]
    sent, one = np.diff(history.upload), 4 * (MODEL_SCALARS + 1)
    assert sent[:4].tolist() == [5 * 5 * one] * 4, "five clients can rank, and all that is sampled travels"
    assert (sent[4:] <= 5 * 2 * one).all()
    assert algorithm.times_sampled[0].sum().item() == 4 * 5 * 5 and algorithm.times_selected[0].sum().item() == 4 * 5 * 2


def test_without_a_first_phase_nobody_is_preferred():
    assert_same_trips(run(method(first_phase=0.0)), run(Local(), scenario=decentralized()), fewest=60)


def test_where_all_that_are_sampled_are_selected_all_are_preferred():
    algorithm = method(sampled=2, selected=2)
    run(algorithm, rounds=1)
    assert algorithm.preferred.equal(algorithm.times_sampled > 0) and algorithm.preferred.any()


def test_the_threshold_is_chance():
    algorithm = method(sampled=4, selected=2)
    run(algorithm, rounds=1)
    algorithm.times_sampled[0, 0] = torch.tensor([0.0, 4, 4, 4, 0, 0])
    algorithm.times_selected[0, 0] = torch.tensor([0.0, 1, 2, 3, 0, 0])
    assert algorithm.preferred[0, 0].tolist() == [False, False, False, True, False, False]
