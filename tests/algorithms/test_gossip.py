"""Segmented gossip: its limits, its matrices, segments, bytes."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.gossip import Gossip
from fgl_bench.errors import UserError
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.peers import decentralized, run, watch_exchanges
from tests.small_runs import synchronous


def method(**changes):
    return Gossip(**{"segments": 1, "peers": 2, "weighting": "samples", **changes})


def exchanges(algorithm, **settings):
    seen = watch_exchanges(algorithm)
    return run(algorithm, **settings), seen


def test_hearing_everybody_is_fedavg():
    assert_same_trips(run(method(segments=4, peers=5)), run(FedAvg(), scenario=synchronous()), fewest=60)


@pytest.mark.parametrize("peers", [6, 50])
def test_more_peers_than_other_clients_are_refused(peers):
    with pytest.raises(UserError, match=rf"algorithm\.peers={peers}: must be an integer from 1 to 5, the number of other clients"):
        run(method(peers=peers))


def test_rows_by_hand():
    result, seen = exchanges(method())
    sizes = result.sim.setting.weights
    for trained, _, exchange in seen:
        for s in range(2):
            for i in range(6):
                row, sent = exchange.matrix[s, i], exchange.sent[s, i]
                heard = torch.nonzero(sent)[:, 0].tolist()
                assert len(heard) == 2 and i not in heard
                expected = torch.zeros(6, dtype=torch.float64)
                expected[[i, *heard]] = sizes[s, [i, *heard]] / sizes[s, [i, *heard]].sum()
                torch.testing.assert_close(row, expected, **TIGHT)
                torch.testing.assert_close(exchange.models[s, i], expected @ trained[s], **TIGHT)
    assert not torch.equal(seen[0][2].sent, seen[1][2].sent), "peers are drawn anew"


@pytest.mark.parametrize("segments", [5, MODEL_SCALARS])
def test_segments_partition_the_model_and_have_peers_of_their_own(segments):
    algorithm = method(segments=segments)
    result, seen = exchanges(algorithm, rounds=2)
    layout = result.sim.setting.layout
    covered = torch.zeros(layout.size, dtype=torch.long)
    for part, size in zip(algorithm.slices, algorithm.sizes, strict=True):
        covered[part] += 1
        real = [position for position in layout.scalars() if part.start <= position < part.stop]
        assert len(real) == size
    assert (covered == 1).all() and max(algorithm.sizes) - min(algorithm.sizes) <= 1 and sum(algorithm.sizes) == MODEL_SCALARS
    scenario, sizes = decentralized(), result.sim.setting.weights
    for number, (trained, _, exchange) in enumerate(seen):
        for s, part in enumerate(algorithm.slices):
            heard = torch.from_numpy(scenario.adjacency(result.sim, 0, number * segments + s))
            support = heard | torch.eye(6, dtype=torch.bool)
            matrix = support * sizes[0]
            matrix = matrix / matrix.sum(1, keepdim=True)
            torch.testing.assert_close(exchange.models[0, :, part], matrix @ trained[0, :, part], **TIGHT)


def test_bytes_do_not_depend_on_the_segments_but_for_the_sizes_that_go_with_them():
    for segments in (1, 7):
        history = run(method(segments=segments), rounds=3).histories[0]
        assert history.upload[-1] == 3 * 6 * 2 * 4 * (MODEL_SCALARS + segments) == history.download[-1]
