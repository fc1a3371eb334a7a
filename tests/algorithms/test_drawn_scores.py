"""Scores of a draw equal the scores of a convolution whose sources are put together, in operations and compiled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.cross_client import _scores
from fgl_bench.algorithms.cross_client._plan import Level
from fgl_bench.engine.attention import dynamic_scores
from tests.engine.test_attention import SLOPE, bipartite, draws

OWN, WIDTH = 4, 5


@pytest.mark.parametrize("block", [1, 1 << 18])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("compiled", [False, True])
def test_rows_of_others_are_those_of_the_store_or_zeros(compiled, threads, heads, block, monkeypatch):
    if compiled:
        pytest.importorskip("numba")
    monkeypatch.setattr(_scores, "compiles", lambda x: compiled)
    monkeypatch.setitem(_scores.BLOCK, "cpu", block)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    graph, _ = bipartite()
    (k, r, c), out = graph.shape, 2 * heads
    shapes = (k, OWN, WIDTH), (20, WIDTH), (k, WIDTH, 2 * out), (k, 2 * out), (k, heads, 2)
    hidden, store, weight, shift, vectors = (x.detach() for x in draws(*shapes))
    others = [c - OWN - 2 * i for i in range(k)]  # blocks have fewer and fewer sources, see bipartite
    held = np.concatenate([3 * i + np.arange(count) for i, count in enumerate(others)])
    bounds, known = np.concatenate([[0], np.cumsum(others)]), np.arange(len(held)) % 3 != 0
    targets = torch.arange(r).remainder(OWN).expand(k, r)
    none = torch.empty(0)  # of what scores do not read
    level = Level((k, r, c), graph.edges, OWN, none, held, torch.from_numpy(held), bounds, targets, none, none, none, none)
    found = _scores.drawn_scores(hidden, store, known, weight, shift, vectors, level, SLOPE)

    rows = torch.zeros(k, c, WIDTH, dtype=torch.float64)
    rows[:, :OWN] = hidden
    for i in range(k):
        of_store = store[held[bounds[i] : bounds[i + 1]]] * torch.from_numpy(known[bounds[i] : bounds[i + 1]])[:, None]
        rows[i, OWN : OWN + others[i]] = of_store
    ends = rows @ weight + shift[:, None]
    into = torch.gather(ends[:, :, out:], 1, targets[..., None].expand(-1, -1, out))
    expected = dynamic_scores(graph, ends[:, :, :out].contiguous(), into, vectors, SLOPE)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
