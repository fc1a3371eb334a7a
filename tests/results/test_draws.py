"""The runs over draws of the masks that the script would make."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
