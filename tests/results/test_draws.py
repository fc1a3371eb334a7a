"""How far a single draw of the masks lies from the mean of many."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import pytest

from fgl_bench.papers.published import Printed
from fgl_bench.papers.settlements import settle, single_draw
from tests.results.test_analysis import cell, printed
from tests.results.test_settlements import NAMED, PAPER, TABLE

ROOT = Path(__file__).resolve().parents[2]


def test_a_single_draw_lies_within_the_prediction_interval():
    # Four draws 1, 2, 3, 4: mean 2.5, s = 1.29099, t(3, 97.5 %) = 3.18245, sqrt(1 + 1/4) = 1.11803: 4.5935.
    found = single_draw([1.0, 2.0, 3.0, 4.0])
    assert found is not None and found.draws == 4
    assert (found.mean, found.low, found.high) == pytest.approx((2.5, 2.5 - 4.5935, 2.5 + 4.5935), abs=1e-3)
    assert single_draw([1.0, 2.0]) is None


def settled(mean: str, received: list[float]):
    published = Printed([printed("3", "cora", "a", mean, "")])
    key = ("3", "a_e3", "cora")
    (found,) = settle(PAPER, TABLE, {key: cell("a", "cora", [0.7, 0.7])}, published, (NAMED,), {key: cell("a", "cora", received)})
    return found


def test_the_draws_of_the_named_row_and_model_explain_a_cell_that_nothing_else_does():
    # Received models: mean 72.5, single draws 67.9 to 77.1.
    scores = [0.71, 0.72, 0.73, 0.74]
    found = settled("77.0", scores)
    assert (found.finding, found.ours) == ("another draw", "70.0")
    assert found.shown_by == "4 draws of the masks: 72.5, single ones 67.9 to 77.1"
    found = settled("77.2", scores)
    assert found.finding == "open" and found.shown_by.endswith("; 4 draws of the masks: 72.5, single ones 67.9 to 77.1")
    assert settled("62.6", scores).finding == "open", "the trained models' draws, ten points below, say nothing"
    assert settled("71.0", scores).finding == "agrees"


@cache
def script():
    sys.path.append(str(ROOT / "scripts"))  # it imports its neighbor
    place = importlib.util.spec_from_file_location("draw_masks", ROOT / "scripts/draw_masks.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_runs_over_draws_are_chosen_by_dataset_and_method(monkeypatch, capsys):
    monkeypatch.setattr(script(), "lacking", lambda work: work.cells)  # whatever is stored
    monkeypatch.setattr(sys, "argv", "draw_masks --paper fedsa_gcl --datasets citeseer --methods local fedgta --list".split())
    with pytest.raises(SystemExit) as ended:
        script().main()
    runs = [line.rsplit(":", 1)[0].split(", ") for line in capsys.readouterr().out.splitlines()]
    assert ended.value.code == 0 and {(run[1], run[-1]) for run in runs} == {("citeseer", "local"), ("citeseer", "fedgta")}
