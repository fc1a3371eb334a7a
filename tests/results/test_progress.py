"""Progress: plain lines now and then, a bar on a terminal; and the callbacks of a run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fgl_bench.results import progress
from fgl_bench.results.callbacks import Callback, Callbacks, PointCallback, Report
from fgl_bench.results.progress import LINE_EVERY, ProgressBar


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@contextmanager
def shown(title: str, total: int, metric: str = "accuracy") -> Iterator[Any]:
    bar = ProgressBar(title, total, metric)
    with Callbacks([bar]) as callbacks:
        yield lambda seed, trips, score: callbacks.report(Report((seed,), trips, score))
    assert not bar.bar.live.is_started, "the terminal is given back"


def test_a_line_comes_when_it_is_due_and_says_what_is_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with shown("fedavg on cora", 1000, "macro_f1") as report:
        report(0, 10, 0.0)
        clock.now += LINE_EVERY
        report(0, 250, 0.613)
        report(0, 260, 0.0)
        clock.now += LINE_EVERY / 2
        report(0, 300, 0.0)
        clock.now += LINE_EVERY / 2
        report(0, 500, 0.7)
    first, second = capsys.readouterr().err.splitlines()
    # 15 s for 250 of 1,000 trips: 45 s for the rest; then 30 s for half.
    assert first == "fedavg on cora: 250/1000 trips, val macro_f1 61.3%, about 45 s left"
    assert second == "fedavg on cora: 500/1000 trips, val macro_f1 70.0%, about 30 s left"


def test_trips_of_programs_that_train_side_by_side_are_added(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with shown("x", 1000) as report:
        report(0, 400, 0.0)
        report(1, 100, 0.0)
        report(1, 300, 0.0)
        clock.now += LINE_EVERY
        report(2, 200, 0.5)
    assert "900/1000 trips" in capsys.readouterr().err


def test_the_score_does_not_fall_when_other_seeds_begin(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with shown("fedavg on cora", 200) as report:
        clock.now += LINE_EVERY + 1
        report(0, 100, 0.809)
        clock.now += LINE_EVERY + 1
        report(1, 5, 0.093)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all("80.9%" in line for line in said) and "105/200" in said[1]


def test_nothing_goes_to_standard_output_and_no_control_characters_without_a_terminal(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown("x", 10) as report:
        clock.now += LINE_EVERY
        report(0, 0, 0.0)
    captured = capsys.readouterr()
    assert captured.out == "" and re.fullmatch(r"[\x20-\x7e\n]*", captured.err)


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = ProgressBar("x", 10, "accuracy")
    with pytest.raises(KeyboardInterrupt), Callbacks([bar]) as callbacks:
        callbacks.report(Report((0,), 4, 0.25))
        (task,) = bar.bar.tasks
        assert (task.completed, task.total, task.fields["score"]) == (4, 10, "25.0%") and bar.bar.live.is_started
        raise KeyboardInterrupt
    assert not bar.bar.live.is_started, "the terminal is given back"


def test_a_canceled_run_stops_at_its_next_report() -> None:
    with Callbacks() as callbacks:
        callbacks.report(Report((0,), 1, 0.0))
        callbacks.cancel()
        with pytest.raises(KeyboardInterrupt):
            callbacks.report(Report((1,), 2, 0.0))


class Noted(Callback):
    def __init__(self, name: str, notes: list[str], fails: bool = False):
        self.name, self.notes, self.fails = name, notes, fails

    def run_begin(self) -> None:
        self.notes.append(f"{self.name} begins")
        if self.fails:
            raise ValueError

    def run_end(self, folder: Path) -> None:
        self.notes.append(f"{self.name} ends")

    def close(self) -> None:
        self.notes.append(f"{self.name} closes")


def test_every_callback_that_has_begun_is_closed() -> None:
    notes: list[str] = []
    with pytest.raises(KeyboardInterrupt), Callbacks([Noted("a", notes), Noted("b", notes)]) as callbacks:
        callbacks.run_end(Path())
        raise KeyboardInterrupt
    assert notes == ["a begins", "b begins", "a ends", "b ends", "b closes", "a closes"]
    notes.clear()
    with pytest.raises(ValueError), Callbacks([Noted("a", notes), Noted("b", notes, fails=True), Noted("c", notes)]):
        pytest.fail("it has not begun")
    assert notes == ["a begins", "b begins", "b closes", "a closes"]


def test_a_function_that_fails_on_a_point_discards_the_checkpoints_at_the_end() -> None:
    discarded: list[bool] = []

    def watch(point: Any) -> None:
        if point["trip"] == 2:
            raise ValueError

    for last, wanted in ((1, []), (2, [True])):
        try:
            with Callbacks([PointCallback(watch, lambda: discarded.append(True))]) as callbacks:
                callbacks.report(Report((0,), 1, 0.5, [{"trip": trip} for trip in range(last + 1)]))
                assert last == 1
        except ValueError:
            assert last == 2
        assert discarded == wanted
