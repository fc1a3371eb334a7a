"""The log of scores and what is read from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.evaluation.history import History, Point, ScoreLog


def history(received, sizes, trained=None, trips=None, seed=0):
    """From scores ``[T, C, 2]`` (correct validation and test nodes) and sizes ``[C, 2]``."""
    received = np.array(received, dtype=float)
    count = len(received)
    trips = np.arange(count) * 10 if trips is None else np.array(trips)
    scores = {"received": received, "trained": received if trained is None else np.array(trained, dtype=float)}
    zeros = np.zeros(count, dtype=int)
    return History(seed, trips, zeros, zeros.astype(float), zeros, zeros, np.full((count, 2), np.nan), scores, np.array(sizes))


def test_the_log_hands_out_positions_and_reads_everything_back():
    log = ScoreLog()
    assert log.read().shape == (0, 2)
    assert (log.add(torch.tensor([[1.0, 2], [3, 4]])), log.add(torch.tensor([[5.0, 6]]))) == (0, 2)
    assert log.size == 3
    for _ in range(2):
        assert log.read().tolist() == [[1, 2], [3, 4], [5, 6]]
    assert log.add(torch.tensor([[7.0, 8]])) == 3
    assert log.read()[3].tolist() == [7, 8] and log.read().dtype == np.float64


def test_points_look_their_scores_up():
    scores = np.array([[1, 2], [3, 4], [5, 6]], dtype=float)
    points = [
        Point(0, 0, 0.0, np.array([0, 1]), np.array([0, 1]), 0, 8),
        Point(4, 2, 1.5, np.array([2, 1]), np.array([0, 2]), 16, 24, staleness=(0.5, 2.0)),
    ]
    h = History.of(7, points, scores, np.array([[5, 6], [5, 6]]))
    assert h.seed == 7 and h.trips.tolist() == [0, 4] and h.version.tolist() == [0, 2] and h.time.tolist() == [0, 1.5]
    assert h.upload.tolist() == [0, 16] and h.download.tolist() == [8, 24]
    assert h.scores["received"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [3, 4]]]
    assert h.scores["trained"].tolist() == [[[1, 2], [3, 4]], [[1, 2], [5, 6]]]
    assert np.isnan(h.staleness[0]).all() and h.staleness[1].tolist() == [0.5, 2]


def test_pooled_scores_are_weighted_by_nodes():
    h = history([[[3, 1], [1, 2]]], [[4, 2], [1, 8]])
    assert h.pooled("received").tolist() == [[4 / 5, 3 / 10]]
    assert h.each("received").tolist() == [[[0.75, 0.5], [1.0, 0.25]]]


def test_pooled_scores_weighted_by_given_sizes():
    h = history([[[3, 1], [1, 2]]], [[4, 2], [1, 8]])
    assert h.pooled("received", np.array([1, 3]))[0].tolist() == pytest.approx([(0.75 + 3 * 1.0) / 4, (0.5 + 3 * 0.25) / 4])


@pytest.mark.parametrize("weights", [None, np.array([5, 3])])
def test_clients_without_such_nodes_do_not_count(weights):
    h = history([[[3, 0], [2, 2]]], [[4, 0], [2, 8]])
    assert h.pooled("received", weights)[0, 1] == 0.25
    assert np.isnan(h.each("received")[0, 0, 1])


@pytest.mark.filterwarnings("error")
def test_with_no_scored_nodes_the_score_is_undefined():
    assert np.isnan(history([[[0, 0]]], [[0, 0]]).pooled("received")).all()
    without_test = history([[[1, 0]], [[2, 0]]], [[4, 0]])
    assert without_test.selectable("received").tolist() == [0.25, 0.5]  # targets are validation scores
    assert np.isnan(without_test.pooled("received")[:, 1]).all()
    assert history([[[0, 1]], [[0, 2]]], [[0, 4]]).selectable("received").tolist() == [-np.inf, -np.inf]
