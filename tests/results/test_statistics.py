"""Statistics worked out by hand, or taken from the tables that their authors print."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fgl_bench.results.statistics import (
    against_best,
    agreement,
    average_ranks,
    fairness,
    holm,
    paired_t,
    pareto,
    wilcoxon,
)

PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_holm_by_hand():
    # sorted .005 .01 .03 .04 times 4 3 2 1 = .02 .03 .06 .04, made monotone
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


@given(PROBABILITIES)
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(p):
    adjusted = holm(p)
    for raw, new in zip(p, adjusted, strict=True):
        assert raw <= new <= min(1.0, len(p) * raw) + 1e-12
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_signed_ranks_of_three_pairs_by_hand():
    # All gaps are positive: of the 2^3 signs, only the given ones and their opposites are as extreme.
    assert wilcoxon([3.0, 4.0, 6.0], [2.0, 2.0, 2.0]) == pytest.approx((7 / 3, 0.25))
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]) == (0.0, 1.0)
    assert math.isnan(wilcoxon([1.0], [2.0])[1])


def test_paired_t_by_hand():
    # differences 1 2 3: mean 2, std 1, t = 2 sqrt 3 on 2 degrees of freedom, for which p = 1 - t / sqrt(t^2 + 2)
    mean, p = paired_t([2, 4, 6], [1, 2, 3])
    t = 2 * math.sqrt(3)
    assert mean == 2 and p == pytest.approx(1 - t / math.sqrt(t * t + 2))


def test_paired_t_where_there_is_no_spread():
    assert paired_t([0.5, 0.7], [0.5, 0.7]) == (0, 1)
    mean, p = paired_t([0.6, 0.8], [0.5, 0.7])
    assert mean == pytest.approx(0.1) and p == 0
    assert math.isnan(paired_t([1.0], [0.5])[1])


def test_the_pairing_is_used():
    """Two methods that differ by a little in every seed while the seeds differ by a lot."""
    easy = [0.5, 0.6, 0.7, 0.8, 0.9]
    scores = {"a": [x + d for x, d in zip(easy, (0.01, 0.012, 0.011, 0.009, 0.01), strict=True)], "b": easy}
    best, [other] = against_best(scores)
    assert best == "a" and other.name == "b" and other.worse and other.adjusted == other.p


def test_all_comparisons_of_a_column_are_corrected_together():
    best, found = against_best({"a": [3, 5, 7], "b": [2, 3, 4], "c": [1, 3, 5.5]})
    assert best == "a" and [c.name for c in found] == ["b", "c"]
    assert [c.adjusted for c in found] == pytest.approx(holm([c.p for c in found]))
    assert against_best({"only": [1, 2]}) == ("only", [])


def test_ranks_share_ties_and_order_methods():
    found = average_ranks({"a": [3, 3, 3], "b": [2, 3, 1], "c": [1, 1, 2]}, ["cora"] * 3)
    assert found.ranks == {"a": pytest.approx(3.5 / 3), "b": pytest.approx(6.5 / 3), "c": pytest.approx(8 / 3)}
    assert list(found.ranks) == ["a", "b", "c"] and (found.columns, found.graphs, found.intervals) == (3, 1, {})
    assert sum(found.ranks.values()) == pytest.approx(6)
    assert found.texts()["a"] == "1.17"


def test_intervals_of_ranks_draw_graphs_with_all_their_columns():
    """Two graphs: a draw has the first twice (1/4), the second twice (1/4), or both; b is first in the one column of the second."""
    found = average_ranks({"a": [2, 2, 2, 1], "b": [1, 1, 1, 2]}, ["x", "x", "x", "y"])
    assert found.ranks == {"a": 1.25, "b": 1.75} and found.graphs == 2
    assert found.intervals == {"a": (1, 2), "b": (1, 2)} and found.texts()["b"] == "1.75 [1.00, 2.00]"
    many = average_ranks({"a": [2] * 30 + [1] * 10, "b": [1] * 30 + [2] * 10}, [str(i) for i in range(40)])
    share = stats.binom.ppf([0.025, 0.975], 40, 0.25) / 40
    assert many.intervals["a"] == pytest.approx(tuple(1 + share), abs=0.03)


def test_ranks_need_two_methods_and_two_columns():
    assert average_ranks({"a": [1, 2]}, ["x", "y"]) is None and average_ranks({"a": [1], "b": [2]}, ["x"]) is None
    assert average_ranks({}, []) is None


def test_tau_by_hand():
    # one of six pairs is turned round: (5 - 1) / 6
    assert agreement([1, 2, 3, 4], [10, 20, 40, 30]).tau == pytest.approx(4 / 6)
    assert agreement([1, 2, 3], [3, 2, 1]).tau == pytest.approx(-1)
    assert agreement([1, 2], [1, 2]) is None and agreement([1, 1, 1], [1, 2, 3]) is None


def test_fairness_by_hand():
    found = fairness([[0.2, 0.4, 0.6, None], [0.4, 0.4, 0.4, 0.4]])
    assert found == {
        "worst": pytest.approx(0.3), "tenth": pytest.approx((0.24 + 0.4) / 2), "median": pytest.approx(0.4),
        "best": pytest.approx(0.5), "std": pytest.approx(0.1),
    }  # fmt: skip
    assert fairness([[None, None]])["worst"] is None and fairness([[0.5]])["std"] == 0


def test_pareto_front():
    points = {"cheap": (1, 0.5), "good": (5, 0.9), "poor": (6, 0.8), "same": (1, 0.4), "twin": (5, 0.9)}
    assert pareto(points) == ["cheap", "good", "twin"]


@given(st.dictionaries(st.text(min_size=1, max_size=2), st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6))
def test_the_front_is_never_empty_and_rises(points):
    front = [points[name] for name in pareto(points)]
    assert front and front == sorted(front) and [s for _, s in front] == sorted(s for _, s in front)
