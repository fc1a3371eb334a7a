"""Processes in turn: how a signal ends them."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

from fgl_bench.runner.started import InTurn, Started


class Plan:
    def __repr__(self) -> str:
        raise AssertionError("the whole plan is made into text")


@dataclass(kw_only=True)
class Signaled(InTurn):
    """Gets a signal as it begins its first work."""

    number: int
    begun: int = 0

    def begin(self, display) -> int:
        self.begun += 1
        self.waiting.pop()
        os.kill(os.getpid(), self.number)
        return 0

    def end(self, work: Plan, started: Started, display) -> int:
        return 0

    def cost(self, work: Plan) -> float:
        return 0.0

    def name(self, work: Plan) -> str:
        return "work"


def test_a_signal_ends_the_work_and_finds_its_handlers_again(capsys):
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        runs = Signaled(waiting=[Plan(), Plan()], jobs=1, number=number)
        runs.make()
        assert runs.stopping and runs.begun == 1 and len(runs.waiting) == 1
        assert signal.getsignal(number) is before
        assert runs.status == 130 and "interrupted" in capsys.readouterr().err


@dataclass(kw_only=True)
class Sleeping(InTurn):
    """Two processes that take some looks; counts how often it is asked what is left."""

    pause = 0.01
    asked: int = 0

    def begin(self, display) -> int:
        while self.waiting and len(self.running) < self.jobs:
            self.running.append((self.waiting.pop(), Started([sys.executable, "-c", "import time; time.sleep(0.3)"])))
        return 0

    def end(self, work: str, started: Started, display) -> int:
        started.log.close()
        return 0

    def cost(self, work: str) -> float:
        self.asked += 1
        return 5.0

    def name(self, work: str) -> str:
        return work


def test_what_is_left_is_estimated_when_something_has_ended():
    runs = Sleeping(waiting=["a", "b"], jobs=1)
    runs.make()
    assert runs.asked == 3 and runs.status == 0
