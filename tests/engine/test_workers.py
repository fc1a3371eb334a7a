"""Programs side by side: who runs with whom, and that every job's result and error arrive."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.engine.workers import groups, side_by_side


@pytest.fixture
def cores(monkeypatch):
    """Two, whatever the machine has; setting them does nothing."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


@pytest.mark.parametrize(
    ("jobs", "at_once", "wanted"),
    [(5, 3, [2, 3]), (5, 2, [2, 2, 1]), (5, 1, [1] * 5), (4, 3, [2, 2]), (1, 3, [1]), (3, 3, [3]), (3, 2, [2, 1]), (0, 3, [])],
)
def test_two_cores_take_two_jobs_at_a_time_and_the_last_three_together(cores, jobs, at_once, wanted):
    assert groups(jobs, at_once) == wanted


@given(jobs=st.integers(0, 50), at_once=st.integers(1, 40))
def test_groups_are_no_larger_than_allowed_and_only_the_last_differs(jobs, at_once):
    sizes, size = groups(jobs, at_once), min(at_once, torch.get_num_threads())
    assert sum(sizes) == jobs and all(0 < each <= at_once for each in sizes)
    assert all(each == size for each in sizes[:-1])


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_results_come_in_the_order_of_the_jobs(cores, at_once):
    assert side_by_side([lambda i=i: i for i in range(5)], at_once, 1, pytest.fail) == list(range(5))


def test_the_last_three_really_run_together(cores):
    """Each waits for the others."""
    met = [threading.Barrier(2, timeout=30), threading.Barrier(3, timeout=30)]
    jobs = [lambda i=i: met[i >= 2].wait() for i in range(5)]
    assert sorted(side_by_side(jobs, 3, 1, pytest.fail)) == [0, 0, 1, 1, 2]


def test_a_failing_job_cancels_the_others_and_is_raised(cores):
    cancelled = threading.Event()

    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        side_by_side([lambda: cancelled.wait(30), fails, lambda: pytest.fail("a later group was begun")], 2, 1, cancelled.set)
    assert cancelled.is_set()
