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
    run.version, run.warmup_rounds = np.arange(4), 1
    assert best(run, "received") == 3
    assert trips_to(run, "received", 0.9) is None and trips_to(run, "received", 0.2) == int(run.trips[2])
    run.warmup_rounds = 10**6
    assert best(run, "received") == 0, "a run that ends within its warmup_rounds is still scored"


def test_clients_without_a_score_are_counted_by_seed():
    """As ``scored_nodes`` says: with AUC a client whose nodes are of one class has none."""
    first = history([[[4, 0], [0, 3], [1, 1]]], [[5, 0], [0, 4], [2, 2]])
    second = history([[[4, 2], [1, 0], [1, 1]]], [[5, 3], [2, 0], [2, 2]], seed=1)
    assert summary.unscored([first, second]) == {"val": [1, 0], "test": [1, 1]}
    got = summary.test_scores([first, second], "received")
    assert got["per_seed"] == pytest.approx([4 / 6, 3 / 5]), "weighted by the nodes of those that have a score"
    assert got["macro"]["mean"] == pytest.approx((0.625 + (2 / 3 + 1 / 2) / 2) / 2)
    assert got["per_client"][0][0] is None and got["per_client"][1][1] is None


def test_four_scores_by_hand():
    # 10 and 40 test nodes, 10 validation nodes each. The federation is best at point 1 (14 of 20), client 0 at 2, client 1 at 1.
    run = history([[[3, 2], [5, 10]], [[6, 5], [8, 20]], [[9, 8], [1, 30]]], [[10, 10], [10, 40]])
    got = summary.test_scores([run], "received")["selected"]
    assert got["federation"]["weighted"]["mean"] == pytest.approx((5 + 20) / 50)
    assert got["federation"]["macro"]["mean"] == pytest.approx((0.5 + 0.5) / 2)
    assert got["client"]["weighted"]["mean"] == pytest.approx((8 + 20) / 50)
    assert got["client"]["macro"]["mean"] == pytest.approx((0.8 + 0.5) / 2)
    weighted = summary.test_scores([run], "received", [np.array([3, 1])])["selected"]
    assert weighted["client"]["weighted"]["mean"] == pytest.approx((3 * 0.8 + 0.5) / 4)
    assert weighted["client"]["macro"] == got["client"]["macro"], "sizes play no role in an unweighted mean"


def test_of_equal_points_of_a_client_the_earliest_counts_and_a_prelude_does_not():
    run = history([[[9, 9]], [[4, 1]], [[6, 2]], [[6, 3]]], [[10, 10]])
    assert summary.test_scores([run], "received")["selected"]["client"]["macro"]["mean"] == pytest.approx(0.9)
    run.version, run.warmup_rounds = np.arange(4), 1
    assert summary.test_scores([run], "received")["selected"]["client"]["macro"]["mean"] == pytest.approx(0.2)


def test_a_client_without_validation_nodes_stays_at_the_federations_point_and_one_without_test_nodes_does_not_count():
    run = history([[[1, 1], [0, 4], [9, 0]], [[5, 2], [0, 2], [1, 0]], [[4, 3], [0, 1], [9, 0]]], [[10, 10], [0, 8], [10, 0]])
    got = summary.test_scores([run], "received")["selected"]
    # Pooled validation 10, 6, 13 of 20: point 2. Client 0 is best at 1; client 1 stays at 2.
    assert got["client"]["macro"]["mean"] == pytest.approx((0.2 + 1 / 8) / 2)
    assert got["federation"]["macro"]["mean"] == pytest.approx((0.3 + 1 / 8) / 2)
    json.dumps(got, allow_nan=False)


def test_a_client_is_never_at_a_point_where_its_model_is_not_finite():
    nan = float("nan")
    run = history([[[2, 3], [5, 6]], [[nan, nan], [7, 7]]], [[10, 10], [10, 10]])
    got = summary.test_scores([run], "received")["selected"]
    assert got["client"]["macro"]["mean"] == pytest.approx((0.3 + 0.7) / 2)
    assert got["federation"]["macro"]["mean"] == pytest.approx((0.3 + 0.6) / 2)
    lost = history([[[nan, nan], [5, 6]]], [[10, 10], [10, 10]])
    got = summary.test_scores([lost], "received")["selected"]["client"]
    assert got["macro"] == {"mean": None, "std": None, "ci95": None, "per_seed": [None]}, "leaving out who failed would favor failing"


def test_every_client_by_itself_is_a_loop_over_clients():
    draw = np.random.default_rng(0)
    runs = [history(draw.integers(0, 9, (6, 4, 2)).tolist(), [[9, 9], [9, 12], [9, 30], [9, 10]], seed=s) for s in (0, 1)]
    expected = []
    for run in runs:
        each = run.each("received")
        expected.append([each[max(range(6), key=lambda t, c=c: (each[t, c, 0], -t)), c, 1] for c in range(4)])  # noqa: B023
    got = summary.test_scores(runs, "received")["selected"]["client"]
    assert got["macro"]["per_seed"] == pytest.approx([np.mean(row) for row in expected])
    assert got["weighted"]["per_seed"] == pytest.approx([np.average(row, weights=[9, 12, 30, 10]) for row in expected])
