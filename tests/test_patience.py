"""What takes long says so."""

from __future__ import annotations

import time

import pytest

from fgl_bench.data import federation
from fgl_bench.utils import patience
from fgl_bench.utils.patience import announce_if_slow
from tests.data.graphs import configured, make_graph


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE", 0.05)


def test_what_takes_long_is_said_while_it_lasts_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with announce_if_slow("counting sheep"):
        time.sleep(0.3)
        assert capsys.readouterr().err == "counting sheep ...\n"
    assert capsys.readouterr().err == "counting sheep: 0 s\n"


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with announce_if_slow("counting sheep"):
        pass
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_slow_partition_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    split = configured("split", "metis")
    drawn = type(split).assign
    monkeypatch.setattr(type(split), "assign", lambda *given: (time.sleep(0.3), drawn(*given))[1])
    federation.cached_assignment(split, make_graph(60, 150), 4, 3, None)
    assert capsys.readouterr().err.splitlines()[0] == "drawing the metis partition of toy for seed 3 ..."
