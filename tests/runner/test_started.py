"""Processes in turn: how a signal ends them."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

from fgl_bench.runner.started import InTurn


class Plan:
    def __repr__(self) -> str:
        raise AssertionError("the whole plan is made into text")


class Named(InTurn):
    def name(self, work) -> str:
        return "work"

    def cost(self, work) -> float:
        return 5.0

    def ended(self, work, status, lines, display) -> str | None:
        return "" if status == 0 else None


@dataclass(kw_only=True)
class Signaled(Named):
    """Gets a signal as it begins its first work."""

    number: int
    begun: int = 0

    def line(self, work: Plan) -> list[str]:
        self.begun += 1
        os.kill(os.getpid(), self.number)
        return [sys.executable, "-c", ""]


def test_a_signal_ends_the_work_and_finds_its_handlers_again(capsys):
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        runs = Signaled(waiting=[Plan(), Plan()], jobs=1, number=number)
        runs.make()
        assert runs.stopping and runs.begun == 1 and len(runs.waiting) == 1
        assert signal.getsignal(number) is before
        assert runs.status == 130 and "interrupted" in capsys.readouterr().err


@dataclass(kw_only=True)
class Sleeping(Named):
    """Processes that take some looks; counts how often a cost is asked for."""

    pause = 0.01
    asked: int = 0

    def line(self, work: str) -> list[str]:
        return [sys.executable, "-c", f"import time; time.sleep(0.3); {work}"]

    def cost(self, work: str) -> float:
        self.asked += 1
        return 5.0


def test_costs_are_asked_for_when_something_has_ended():
    runs = Sleeping(waiting=["pass", "pass"], jobs=1)
    runs.make()
    assert runs.asked == 4 + 2 + 1 and runs.status == 0  # two to begin and to print each, and one for each that is left


def test_failures_have_the_last_line_and_what_would_end_too_late_is_left_out(capsys):
    runs = Sleeping(waiting=["print('bad'); exit(3)", "exit(4)"], jobs=2)
    runs.make()
    assert dict(runs.failures) == {"print('bad'); exit(3)": "bad", "exit(4)": "exit status 4"} and runs.status == 1
    late = Sleeping(waiting=["pass"], jobs=1, until=0)
    late.make()
    assert not late.failures and "left out, no time: work" in capsys.readouterr().out
