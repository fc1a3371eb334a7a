"""The numbers of a table, worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fgl_bench.evaluation import summary
from fgl_bench.evaluation.summary import best, spread, trips_to, trips_to_target
from tests.evaluation.test_history import history


def curve(validation, test, **changes):
    """One client with 100 validation and 100 test nodes and these percentages."""
    return history([[[v, t]] for v, t in zip(validation, test, strict=True)], [[100, 100]], **changes)


def test_spread_of_five_values():
    got = spread([0.70, 0.72, 0.74, 0.76, 0.78])
    # Squared deviations .0016 .0004 0 .0004 .0016 over 4 make .001; t(0.975, 4) = 2.776.
    assert got["mean"] == pytest.approx(0.74)
    assert got["std"] == pytest.approx(0.001**0.5)
    assert got["ci95"] == pytest.approx(2.776 * 0.001**0.5 / 5**0.5, rel=1e-3)


def test_spread_of_two_values():
    got = spread([0.5, 0.6])
    assert got["std"] == pytest.approx(0.1 / 2**0.5)
    assert got["ci95"] == pytest.approx(12.706 * 0.05, rel=1e-3)


def test_one_value_or_none_has_no_spread():
    assert spread([0.5]) == {"mean": 0.5, "std": None, "ci95": None}
    assert spread([]) == {"mean": None, "std": None, "ci95": None}
    assert spread([0.5, 0.5]) == {"mean": 0.5, "std": 0.0, "ci95": 0.0}


def test_the_best_point_is_the_earliest_of_the_highest_validation_scores():
    h = curve([10, 60, 40, 60], [99, 50, 90, 70])
    assert best(h, "received") == 1


def test_selection_is_one_for_the_whole_federation():
    # Client 0 is best at point 0, client 1 at point 1; pooled by nodes point 1 wins, by equal weights point 0.
    h = history([[[10, 1], [20, 1]], [[6, 1], [26, 1]]], [[10, 1], [40, 1]])
    assert best(h, "received") == 1
    assert best(h, "received", np.array([1, 1])) == 0


def test_trips_to_the_first_point_that_reaches_the_target():
    h = curve([10, 49, 50, 40, 80], [0] * 5, trips=[0, 20, 40, 60, 80])
    assert trips_to(h, "received", 0.5) == 40, "at least"
    assert trips_to(h, "received", 0.05) == 0
    assert trips_to(h, "received", 0.81) is None


def test_a_target_counts_validation_not_test():
    assert trips_to(curve([10, 20], [90, 90]), "received", 0.5) is None


def test_the_two_models_are_measured_apart():
    h = curve([10, 60], [20, 30], trained=[[[90, 80]], [[70, 40]]])
    got = {model: summary.test_scores([h], model) for model in ("received", "trained")}
    assert (got["received"]["mean"], got["trained"]["mean"]) == (0.3, 0.8)
    assert got["received"]["selected_trips"] == [10] and got["trained"]["selected_trips"] == [0]


def test_trips_to_a_target_over_seeds():
    histories = [curve([10, 60], [0, 0], trips=[0, 20]), curve([70, 80], [0, 0], trips=[0, 20]), curve([10, 20], [0, 0], trips=[0, 20])]
    got = trips_to_target(histories, 0.5, budget=20)["received"]
    assert got["per_seed"] == [20, 0, None] and got["reached"] == 2
    assert got["mean"] == 10
    assert got["censored_mean"] == pytest.approx(40 / 3), "who never got there counts with the whole budget"
    none = trips_to_target(histories, 0.99, budget=20)["trained"]
    assert none["reached"] == 0 and none["mean"] is None and none["censored_mean"] == 20


def test_scores_over_seeds_and_clients():
    # Seed 0 selects point 1: clients at 8/10 and 10/40. Seed 1 selects point 0: 5/10 and 30/40.
    sizes = [[10, 10], [10, 40]]
    first = history([[[1, 1], [1, 1]], [[9, 8], [9, 10]]], sizes)
    second = history([[[9, 5], [5, 30]], [[1, 9], [1, 9]]], sizes, seed=1)
    got = summary.test_scores([first, second], "received")
    assert got["per_seed"] == pytest.approx([18 / 50, 35 / 50])
    assert got["mean"] == pytest.approx(53 / 100)
    assert got["val"]["mean"] == pytest.approx((18 / 20 + 14 / 20) / 2)
    assert got["last"]["per_seed"] == pytest.approx([18 / 50, 18 / 50])
    assert got["per_client"] == [pytest.approx([0.8, 0.25]), pytest.approx([0.5, 0.75])]
    assert got["macro"]["mean"] == pytest.approx((0.525 + 0.625) / 2)
    assert got["worst_client"]["mean"] == pytest.approx((0.25 + 0.5) / 2)
    weighted = summary.test_scores([first, second], "received", [np.array([3, 1]), np.array([1, 1])])
    assert weighted["per_seed"] == pytest.approx([(3 * 0.8 + 0.25) / 4, 0.625])


def test_a_client_without_test_nodes_is_left_out_and_json_stays_strict():
    h = history([[[1, 0], [1, 3]]], [[2, 0], [2, 4]])
    got = summary.test_scores([h], "received")
    assert got["per_client"] == [[None, 0.75]]
    assert got["worst_client"]["mean"] == got["macro"]["mean"] == got["mean"] == 0.75
    json.dumps(got, allow_nan=False)


def test_points_of_a_prelude_are_not_selected():
    run = curve([90, 80, 20, 30], [90, 90, 50, 60])
    assert best(run, "received") == 0 and trips_to(run, "received", 0.9) == int(run.trips[0])
    run.version, run.prelude = np.arange(4), 1
    assert best(run, "received") == 3
    assert trips_to(run, "received", 0.9) is None and trips_to(run, "received", 0.2) == int(run.trips[2])
    run.prelude = 10**6
    assert best(run, "received") == 0, "a run that ends within its prelude is still scored"


def test_clients_without_a_score_are_counted_by_seed():
    """As ``scored_nodes`` says: with AUC a client whose nodes are of one class has none."""
    first = history([[[4, 0], [0, 3], [1, 1]]], [[5, 0], [0, 4], [2, 2]])
    second = history([[[4, 2], [1, 0], [1, 1]]], [[5, 3], [2, 0], [2, 2]], seed=1)
    assert summary.unscored([first, second]) == {"val": [1, 0], "test": [1, 1]}
    got = summary.test_scores([first, second], "received")
    assert got["per_seed"] == pytest.approx([4 / 6, 3 / 5]), "weighted by the nodes of those that have a score"
    assert got["macro"]["mean"] == pytest.approx((0.625 + (2 / 3 + 1 / 2) / 2) / 2)
    assert got["per_client"][0][0] is None and got["per_client"][1][1] is None
