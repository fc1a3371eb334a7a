from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.data.checks import check_ratios
from fgl_bench.data.masks import held_out_masks, stratified_masks
from fgl_bench.errors import UserError

LABELS = st.lists(st.integers(-1, 4), max_size=120).map(lambda labels: np.array(labels, dtype=np.int64))
RATIOS = st.tuples(st.integers(1, 60), st.integers(0, 20), st.integers(1, 20))  # in hundredths


@given(LABELS, RATIOS, st.integers(0, 99))
def test_every_class_is_cut_at_the_rounded_down_shares(labels, hundredths, seed):
    train, val, test = stratified_masks(labels, tuple(part / 100 for part in hundredths), np.random.default_rng(seed))
    assert not (train & val).any() and not (train & test).any() and not (val & test).any()
    for kind in range(5):
        held = labels == kind
        cuts = [int(Fraction(sum(hundredths[: i + 1]), 100) * int(held.sum())) for i in range(3)]
        assert [int((mask & held).sum()) for mask in (train, val, test)] == [cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1]]
    assert not ((train | val | test) & (labels < 0)).any()


def test_known_counts_at_20_40_40():
    # Four nodes: floor(0.8) = 0 train, floor(2.4) = 2 val, the other 2 test. Five: 1, 2, 2. Nine: 1, 4, 4.
    for size, expected in ((4, (0, 2, 2)), (5, (1, 2, 2)), (9, (1, 4, 4)), (1, (0, 0, 1))):
        masks = stratified_masks(np.zeros(size, dtype=np.int64), (0.2, 0.4, 0.4), np.random.default_rng(0))
        assert tuple(int(mask.sum()) for mask in masks) == expected


def test_masks_follow_their_random_stream():
    labels = np.zeros(100, dtype=np.int64)
    one, same, other = (stratified_masks(labels, (0.2, 0.4, 0.4), np.random.default_rng(seed))[0] for seed in (0, 0, 1))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_every_node_of_a_class_is_as_likely_to_train():
    labels = np.zeros(10, dtype=np.int64)
    counts = sum(stratified_masks(labels, (0.2, 0.4, 0.4), np.random.default_rng(seed))[0].astype(int) for seed in range(2000))
    assert np.abs(counts - 400).max() < 100  # 5.6 standard deviations


@pytest.mark.parametrize(
    "ratios", [[0.2, 0.4], [0.5, 0.4, 0.4], [0, 0.5, 0.5], [0.5, 0.5, 0], [-0.1, 0.5, 0.5], [float("nan"), 0.4, 0.4], "abc", 3]
)
def test_bad_ratios_are_refused_by_key(ratios):
    with pytest.raises(UserError, match=r"split\.ratios=.*three numbers"):
        check_ratios(ratios)


@pytest.mark.parametrize("ratios", [[0.2, 0.4, 0.4], [0.05, 0.475, 0.475], [0.8, 0.1, 0.1], [0.1, 0, 0.2]])
def test_good_ratios_pass(ratios):
    assert check_ratios(ratios) == tuple(ratios)


@given(LABELS, st.integers(0, 99), st.sampled_from([None, 1, 3]))
def test_a_reserve_validates_and_is_never_tested(labels, seed, per_class):
    reserve = np.random.default_rng(seed + 100).random(labels.size) < 0.4
    train, val, test = held_out_masks(labels, (0.2, 0.4, 0.4), np.random.default_rng(seed), reserve, per_class)
    assert not (train & val).any() and not (train & test).any() and not (test & reserve).any() and not (val & ~reserve).any()
    assert not ((train | val | test) & (labels < 0)).any() and np.array_equal(val, reserve & ~train & (labels >= 0))
    for kind in range(5):
        held = labels == kind
        count, free = int(held.sum()), int((held & ~reserve).sum())
        tested = min(int(Fraction(4, 10) * count), free)
        wanted = int(Fraction(2, 10) * count) if per_class is None else per_class
        assert int((test & held).sum()) == tested and int((train & held).sum()) == min(wanted, count - tested)
