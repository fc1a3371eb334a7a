"""Programs side by side: who runs with whom, and that every job's reports, result and error arrive."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.errors import UserError, raised_by_user
from fgl_bench.results.callbacks import Callbacks, Report
from fgl_bench.runner import workers
from fgl_bench.runner.workers import forks, groups, side_by_side
from fgl_bench.utils.processes import Stopped
from fgl_bench.utils.stopping import STOP

forked = pytest.mark.skipif(not forks(), reason="jobs are threads here")


class Heard(Callbacks):
    """Callbacks that keep the reports of jobs: a number and trips."""

    def __init__(self, act=lambda: None):
        super().__init__()
        self.reports, self.cancelled, self.act = [], threading.Event(), act

    def report(self, report):
        self.reports.append((report.seeds[0], report.trips))
        self.act()

    def cancel(self):
        self.cancelled.set()


@pytest.fixture
def cores(monkeypatch):
    """Two, whatever the machine has; setting them does nothing."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


@pytest.fixture(params=[pytest.param("processes", marks=forked), "threads"])
def both(request, cores, monkeypatch):
    monkeypatch.setattr(workers, "forks", lambda: request.param == "processes")
    return request.param


@pytest.fixture
def threads(cores, monkeypatch):
    monkeypatch.setattr(workers, "forks", lambda: False)


@pytest.fixture
def processes(cores):
    if not forks():
        pytest.skip("jobs are threads here")


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
def test_results_come_in_the_order_of_the_jobs(both, at_once):
    assert side_by_side([lambda report, i=i: i for i in range(5)], at_once, 1, Heard()) == list(range(5))


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_every_report_comes_once_and_in_order(both, at_once):
    def job(send, i):
        for trips in range(1, 4):
            send(Report((i,), trips, 0.5))

    heard = Heard()
    side_by_side([lambda send, i=i: job(send, i) for i in range(6)], at_once, 1, heard)
    for i in range(6):
        assert [trips for number, trips in heard.reports if number == i] == [1, 2, 3]


def test_the_last_three_really_run_together(threads):
    """Each waits for the others."""
    met = [threading.Barrier(2, timeout=30), threading.Barrier(3, timeout=30)]
    jobs = [lambda report, i=i: met[i >= 2].wait() for i in range(5)]
    assert sorted(side_by_side(jobs, 3, 1, Heard())) == [0, 0, 1, 1, 2]


def test_a_failing_thread_cancels_the_others_and_is_raised(threads):
    def fails(report):
        raise ValueError("no")

    heard = Heard()
    with pytest.raises(ValueError, match="no"):
        side_by_side([lambda _: heard.cancelled.wait(30), fails, lambda _: pytest.fail("a later group was begun")], 2, 1, heard)
    assert heard.cancelled.is_set()


def test_jobs_that_a_signal_ends_are_waited_for_and_say_what_they_have_kept(both, monkeypatch):
    monkeypatch.setattr(STOP, "held", True)
    monkeypatch.setattr(STOP, "number", None)

    def job(report, i):
        time.sleep(0.3 * i)
        stopped = Stopped(signal.SIGTERM)
        stopped.saved = f"job {i}"
        raise stopped

    with pytest.raises(Stopped) as ended:
        side_by_side([lambda report, i=i: job(report, i) for i in range(2)], 2, 1, Heard())
    assert ended.value.saved == "job 0, job 1" and ended.value.status == 128 + signal.SIGTERM


def test_jobs_of_one_thread_are_processes_of_their_own(processes):
    found = side_by_side([lambda report: (os.getpid(), os.getppid(), torch.get_num_threads()) for _ in range(2)], 2, 1, Heard())
    assert found[0][0] != found[1][0] and all(parent == os.getpid() for _, parent, _ in found)


def test_jobs_of_several_threads_stay_in_this_process(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    assert side_by_side([lambda report: os.getpid() for _ in range(2)], 2, 4, Heard()) == [os.getpid()] * 2


def test_processes_that_may_have_no_children_use_threads(processes, monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    assert side_by_side([lambda report: os.getpid() for _ in range(2)], 2, 1, Heard()) == [os.getpid()] * 2


def test_a_failing_process_ends_the_others_and_its_error_says_where_it_came_from(processes, tmp_path, monkeypatch):
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__("cannot be sent")

    def patient(report):
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)

    def fails(report, error):
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        raise error

    # A failure in a module outside the package, such as this one, is its author's; else it is the package's.
    for error, kind, own in (
        (ValueError("no"), UserError, True),
        (Odd(1, 2), UserError, True),
        (ValueError("no"), ValueError, False),
        (Odd(1, 2), RuntimeError, False),
    ):
        monkeypatch.setattr("fgl_bench.runner.workers.raised_by_user", raised_by_user if own else lambda _: None)
        with pytest.raises(kind) as caught:
            side_by_side([patient, lambda report, error=error: fails(report, error)], 2, 1, Heard())
        assert "in fails" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
        (tmp_path / "pid").unlink()


@pytest.mark.parametrize(("number", "said"), [(signal.SIGKILL, "signal 9; if memory ran out"), (signal.SIGTERM, "signal 15$")])
def test_a_process_that_dies_is_said_in_one_line(processes, number, said):
    with pytest.raises(UserError, match=said):
        side_by_side([lambda report: os.kill(os.getpid(), number), lambda report: time.sleep(60)], 2, 1, Heard())


def test_an_interruption_ends_the_processes(processes, tmp_path):
    def job(report, i):
        (tmp_path / str(i)).write_text(str(os.getpid()))
        report(Report((i,), 1, 0.5))
        time.sleep(60)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        side_by_side([lambda report, i=i: job(report, i) for i in range(2)], 2, 1, Heard(interrupt))
    for file in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
