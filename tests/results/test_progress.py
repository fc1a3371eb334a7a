"""Progress: plain lines now and then, a bar on a terminal, silence where it was asked for."""

from __future__ import annotations

import re
import sys

import pytest

from fgl_bench.results import progress
from fgl_bench.results.progress import LINE_EVERY, RunProgress


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def never():
    raise AssertionError("the accuracy was read, which waits for the device")


def test_a_line_comes_when_it_is_due_and_says_what_is_left(clock, capsys):
    with RunProgress("fedavg on cora", 1000, True, "macro_f1") as report:
        report(0, 10, never)
        clock.now += LINE_EVERY
        report(0, 250, lambda: 0.613)
        report(0, 260, never)
        clock.now += LINE_EVERY / 2
        report(0, 300, never)
        clock.now += LINE_EVERY / 2
        report(0, 500, lambda: 0.7)
    first, second = capsys.readouterr().err.splitlines()
    # 15 s for 250 of 1,000 trips: 45 s for the rest; then 30 s for half.
    assert first == "fedavg on cora: 250/1000 trips, val macro_f1 61.3%, about 45 s left"
    assert second == "fedavg on cora: 500/1000 trips, val macro_f1 70.0%, about 30 s left"


def test_programs_that_train_side_by_side_are_added_up(clock, capsys):
    with RunProgress("x", 1000, True) as report:
        report(0, 400, never)
        report(1, 100, never)
        report(1, 300, never)
        clock.now += LINE_EVERY
        report(2, 200, lambda: 0.5)
    assert "900/1000 trips" in capsys.readouterr().err


@pytest.mark.parametrize("shown", [True, False])
def test_a_cancelled_run_stops_at_its_next_report(clock, shown):
    with RunProgress("x", 10, shown) as report:
        report(0, 1, never)
        report.cancel()
        with pytest.raises(KeyboardInterrupt):
            report(1, 2, never)


def test_silence(clock, capsys):
    with RunProgress("x", 10, False) as report:
        clock.now += 1000
        report(0, 5, never)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_nothing_goes_to_standard_output_and_no_control_characters_without_a_terminal(clock, capsys):
    with RunProgress("x", 10, True) as report:
        clock.now += LINE_EVERY
        report(0, 0, lambda: 0.0)
    captured = capsys.readouterr()
    assert captured.out == "" and re.fullmatch(r"[\x20-\x7e\n]*", captured.err)


def test_a_terminal_gets_a_bar(monkeypatch, clock, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with RunProgress("x", 10, True) as report:
        assert report.bar is not None
        clock.now += progress.BAR_EVERY
        report(0, 4, lambda: 0.25)
        (task,) = report.bar.tasks
        assert (task.completed, task.total, task.fields["accuracy"]) == (4, 10, "25.0%")
    assert report.bar.finished or not report.bar.live.is_started
    with pytest.raises(KeyboardInterrupt), RunProgress("x", 10, True) as report:
        raise KeyboardInterrupt
    assert not report.bar.live.is_started, "the terminal is given back"


def test_rows_are_heard_whether_or_not_anything_is_shown(clock):
    heard = []
    with RunProgress("x", 10, False, hear=[heard.append]) as report:
        report(0, 1, never, lambda: [{"trip": 0}, {"trip": 1}])
        report(1, 2, never)
    assert heard == [{"trip": 0}, {"trip": 1}]
    with RunProgress("x", 10, False) as report:
        report(0, 1, never, never)


def test_the_score_does_not_fall_when_other_seeds_begin(clock, capsys):
    with RunProgress("fedavg on cora", 200, shown=True) as progress:
        clock.now += LINE_EVERY + 1
        progress(0, 100, lambda: 0.809)
        clock.now += LINE_EVERY + 1
        progress(1, 5, lambda: 0.093)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all("80.9%" in line for line in said) and "105/200" in said[1]
