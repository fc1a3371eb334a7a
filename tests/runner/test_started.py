"""Processes in turn: how a signal ends them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from fgl_bench.runner.started import InTurn, Started


class Plan:
    def __repr__(self) -> str:
        raise AssertionError("the whole plan is made into text")


@dataclass(kw_only=True)
class Signaled(InTurn[Plan, str]):
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

    def rest(self) -> float:
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
