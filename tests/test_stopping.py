"""Signals that a run only notes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from fgl_bench.utils import stopping
from fgl_bench.utils.processes import Stopped, import_torch, raise_again, stoppable
from fgl_bench.utils.stopping import STOP, held_back


def told(times: int, begun: list[int]) -> Stopped:
    """What ends a process that is told so often to end while it holds signals back; ``begun`` are the times that it went on."""
    with stoppable(), pytest.raises(Stopped) as ended, held_back("all"):
        for time in range(times):
            os.kill(os.getpid(), signal.SIGTERM)
            begun.append(time)
    assert STOP.number is None and not STOP.held
    return ended.value


def test_a_launcher_may_send_the_same_signal_twice() -> None:
    begun: list[int] = []
    assert told(2, begun).saved == "all" and begun == [0, 1], "it ended when it suited"


def test_a_signal_that_comes_later_is_obeyed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "ONCE", -1.0)
    begun: list[int] = []
    assert told(2, begun).number == signal.SIGTERM and begun == [0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_somebody_swallows_is_raised_again_before_a_run(number: signal.Signals) -> None:
    with stoppable() as stopped:
        raise_again()
        with suppress(Stopped):
            os.kill(os.getpid(), number)
        with pytest.raises(Stopped):
            raise_again()
    assert [each.number for each in stopped] == [number]
    with stoppable():
        raise_again()


def test_ctrl_c_is_obeyed_every_time() -> None:
    with stoppable() as stopped:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    assert [str(each) for each in stopped] == ["interrupted"]


IMPORTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == "hydra":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from fgl_bench.__main__ import main
main()
"""


def test_ctrl_c_while_the_command_imports_leaves_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_signals_are_held_back_only_while_torch_is_imported() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    import_torch()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
