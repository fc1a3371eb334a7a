"""``fgl-bench import``: cells of another machine are stored once, and a cell that this version would not make is refused in a line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fgl_bench.cli.import_cells import run
from fgl_bench.errors import UserError
from fgl_bench.results.cells import NAME, read_cells, write_cells
from fgl_bench.results.store import config_hash

RESULTS = Path(__file__).parents[1] / "results"
PAPER = "fedgta"


@pytest.fixture
def cells() -> list[dict[str, Any]]:
    """Two stored cells of a paper."""
    return read_cells(RESULTS / "cells" / PAPER)[:2]


@pytest.fixture
def source(tmp_path, cells) -> Path:
    """A folder with these cells and one of the leaderboard; ``results`` beside it is empty."""
    write_cells(tmp_path / "gpu" / "cells" / PAPER, cells)
    (path, *_) = sorted((RESULTS / "leaderboard" / "v2").glob("webkb/fedavg.json"))
    copy = tmp_path / "gpu" / path.relative_to(RESULTS)
    copy.parent.mkdir(parents=True)
    shutil.copy(path, copy)
    shutil.copy(path.with_suffix(".npz"), copy.with_suffix(".npz"))
    (tmp_path / "results").mkdir()
    return tmp_path / "gpu"


def imported(source: Path, capsys: pytest.CaptureFixture[str], status: int | None = None) -> list[str]:
    try:
        run([str(source), f"into={source.with_name('results')}"])
    except SystemExit as ended:
        assert ended.code == status
    else:
        assert status is None
    return capsys.readouterr().out.splitlines()


def test_cells_are_stored_as_they_were_and_once(source, cells, capsys):
    results = source.with_name("results")
    assert imported(source, capsys)[0] == f"3 cell(s) imported into {results}, 0 stored already, 0 refused"
    assert read_cells(results / "cells" / PAPER) == cells
    files = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert {path.relative_to(results) for path in files} >= {path.relative_to(source) for path in source.glob("leaderboard/*/*/*")}
    assert imported(source, capsys) == [f"0 cell(s) imported into {results}, 3 stored already, 0 refused"]
    assert {path: path.read_bytes() for path in files} == files


def test_a_new_run_takes_the_place_of_a_stored_one(source, cells, capsys):
    """A table cell has one run: that of another configuration, such as one before a correction, leaves it."""
    old = {**cells[0], "config_hash": "0" * 12}
    write_cells(source.with_name("results") / "cells" / PAPER, [old])
    imported(source, capsys)
    assert read_cells(source.with_name("results") / "cells" / PAPER) == cells


def other_rate(cell: dict[str, Any]) -> None:
    cell["config"]["lr"] = 0.5


def other_rate_hashed(cell: dict[str, Any]) -> None:
    other_rate(cell)
    cell["config_hash"] = config_hash(cell["config"])


def other_command(cell: dict[str, Any]) -> None:
    cell["places"] = [(*place[:3], (*place[3], "lr=0.5")) for place in cell["places"]]


def no_lists(cell: dict[str, Any]) -> None:
    cell["places"] = [({}, [], None, ())]


def score(cell: dict[str, Any]) -> None:
    cell["test"]["received"]["per_seed"] = [0.99]


def version(cell: dict[str, Any]) -> None:
    cell["versions"]["fgl-bench"] = "0.0.1"


def changes(cell: dict[str, Any]) -> None:
    cell["code"] = {"commit": "0" * 40, "dirty": True}


def no_commit(cell: dict[str, Any]) -> None:
    del cell["code"]


def no_config(cell: dict[str, Any]) -> None:
    cell["config"] = {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_rate, "does not have the hash"),
        (other_rate_hashed, "its command makes another configuration now: lr"),
        (other_command, "fills no cell of a table"),
        (no_lists, "unhashable"),
        (score, "1 values for 5 seed"),
        (version, "made by fgl-bench 0.0.1, this is "),
        (changes, "not committed"),
        (no_commit, "not committed"),
        (no_config, "hash"),
    ],
)
def test_a_changed_cell_is_refused_in_a_line_and_the_others_are_stored(
    source, cells, capsys, change: Callable[[dict[str, Any]], None], reason
):
    change(cells[0])
    write_cells(source / "cells" / PAPER, cells)
    refused, summary, *_ = imported(source, capsys, status=1)
    assert refused.startswith(f"refused: {PAPER} ") and reason in refused
    assert summary.startswith("2 cell(s) imported into ") and summary.endswith(" 1 refused")
    assert read_cells(source.with_name("results") / "cells" / PAPER) == [cells[1]]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("protocol", "0" * 12, "made for another protocol"),
        ("entry", "../../elsewhere", "is not in the leaderboard"),
        ("trials", [], "not complete"),
        ("facts", {}, "made by fgl-bench None"),
        ("version", 99, "no cell of version"),
    ],
)
def test_a_changed_cell_of_the_leaderboard_is_refused(source, capsys, key, value, reason):
    (path,) = (source / "leaderboard").rglob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), key: value}), encoding="utf-8")
    refused, summary, *_ = imported(source, capsys, status=1)
    assert refused.startswith("refused: leaderboard/webkb/fedavg: ") and reason in refused
    assert summary.startswith("2 cell(s) imported") and not (source.with_name("results") / "leaderboard").exists()


@pytest.mark.parametrize("predictions", [b"no archive", "one node", "fewer seeds"])
def test_predictions_that_do_not_give_the_scores_are_refused(source, capsys, predictions):
    (path,) = (source / "leaderboard").rglob("*.npz")
    if isinstance(predictions, bytes):
        path.write_bytes(predictions)
    else:
        with np.load(path) as stored:
            arrays = dict(stored)
        arrays["nodes"][0] = arrays["nodes"][0] == 0
        arrays["sizes"] = arrays["sizes"][: 9 if predictions == "fewer seeds" else None]
        np.savez(path, **arrays)
    refused, summary, *_ = imported(source, capsys, status=1)
    assert refused.startswith("refused: leaderboard/webkb/fedavg: ") and summary.startswith("2 cell(s) imported")
    assert not (source.with_name("results") / "leaderboard").exists()


@pytest.mark.parametrize("text", ["", "places\n1\n", "nonsense", 'config_hash,places\nabc,"[[1]]"\n', "\x00"])
def test_a_damaged_file_is_refused_in_a_line(source, capsys, text):
    (source / "cells" / PAPER / NAME).write_text(text, encoding="utf-8")
    refused, summary, *_ = imported(source, capsys, status=1)
    assert refused.startswith("refused: ") and PAPER in refused
    assert not (source.with_name("results") / "cells").exists()


@pytest.mark.parametrize(
    ("line", "reason"),
    [((), "import what"), (("a", "b"), "give one folder"), (("nowhere",), "nowhere: there is no such folder"), ((".", "as=csv"), "as=csv")],
)
def test_a_wrong_argument_is_one_line(line, reason):
    with pytest.raises(UserError, match=reason):
        run(line)


def test_the_command_prints_what_it_did(source):
    line = [sys.executable, "-m", "fgl_bench", "import", source.name, "into=results"]
    done = subprocess.run(line, cwd=source.parent, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 cell(s) imported into results, 0 stored already, 0 refused\n")
