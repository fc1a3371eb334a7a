"""A user's own method in the leaderboard, and the check of cells that somebody else has made."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace

import pytest

from fgl_bench.cli.leaderboard import show as show_board
from fgl_bench.cli.place import show as place
from fgl_bench.cli.submit import run as submit
from fgl_bench.leaderboard.cell import BoardCell
from fgl_bench.leaderboard.checks import chosen
from fgl_bench.leaderboard.protocol import read_protocol
from fgl_bench.leaderboard.record import read_records
from fgl_bench.leaderboard.submission import read_submission, whole_board
from tests.test_leaderboard import written
from tests.test_placing import METHOD

SPACE = "algorithm.share: [0.5, 0.25]"
QUIET = ("device=cpu", "threads=1", "cache_dir=cache", "protocol=protocol.yaml")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a stored entry, and a user's method that has been placed beside it."""
    folder = tmp_path_factory.mktemp("guest")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        (folder / "halved_method.py").write_text(METHOD, encoding="utf-8")
        (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
        protocol = read_protocol(written(folder))
        entry = next(entry for entry in protocol.entries if entry.name == "fedavg")
        where = ("device=cpu", "threads=1", "cache_dir=cache")
        BoardCell(protocol, entry, protocol.columns[0], folder / "stored", where, say=lambda text: None).make()
        place(["halved_method.py", "leaderboard", "space=space.yaml", "results=stored", "out=mine", *QUIET])
        sys.modules.pop("halved_method", None)
    return folder


@pytest.fixture
def guest(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "halved_method", raising=False)
    yield tmp_path / "copy"
    sys.modules.pop("halved_method", None)


def test_a_method_is_tuned_scored_and_ranked_as_all_others(guest, capsys):
    protocol = read_protocol(guest / "protocol.yaml")
    entry = read_submission(guest / "mine").entry(protocol)
    [record] = read_records(guest / "mine")
    assert record.entry == entry.name == "halved" and record.complete and record.protocol == protocol.digest(entry, protocol.columns[0])
    assert [trial.values for trial in record.trials] == protocol.trials_of(entry, protocol.columns[0])
    assert {trial.values["algorithm.share"] for trial in record.trials} <= {0.5, 0.25} and record.trials[0].values["algorithm.share"] == 0.5
    assert all("optimizer" in trial.values for trial in record.trials)
    stamp = {path: path.stat().st_mtime_ns for path in guest.glob("mine/*/*.json")}
    place(["halved_method.py", "leaderboard", "space=space.yaml", "results=stored", "out=mine", *QUIET])
    said = capsys.readouterr().out
    assert "> halved" in said and "fedavg" in said and "corrected" in said and "submit --check mine" in said
    assert {path: path.stat().st_mtime_ns for path in guest.glob("mine/*/*.json")} == stamp  # nothing is made twice


def test_an_edited_method_is_made_anew(guest, capsys):
    (guest / "halved_method.py").write_text(METHOD + "# edited\n", encoding="utf-8")
    before = read_records(guest / "mine")[0].protocol
    place(["halved_method.py", "leaderboard", "space=space.yaml", "results=stored", "out=mine", *QUIET])
    assert "recomputed" in capsys.readouterr().err and read_records(guest / "mine")[0].protocol != before


def checked(*arguments: str) -> int:
    try:
        submit(["--check", "mine", *arguments, *QUIET])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_honest_cells_pass_and_a_share_of_the_runs_is_repeated(guest, capsys, monkeypatch):
    seeds = []
    usual = BoardCell.run
    monkeypatch.setattr(
        BoardCell, "run", lambda self, values, chosen, *more: seeds.append(tuple(chosen)) or usual(self, values, chosen, *more)
    )
    assert checked("tolerance=1e-6", "draw=after") == 0
    said = capsys.readouterr().out
    assert "agrees: halved in csbm: " in said and "1 cell(s) of halved follow the protocol" in said
    assert [len(each) for each in seeds] == [1]  # one seed of a winner alone has the score that it has among the others
    protocol, records = read_protocol(guest / "protocol.yaml"), read_records(guest / "mine")
    repeats = chosen(protocol, [records[0]] * 10, "")
    assert len(repeats) == 3 + 1 and sum(repeat.seed is not None for repeat in repeats) == 3  # of 60 seeds and 30 trials
    assert chosen(protocol, records, "a") == chosen(protocol, records, "a")
    assert len({str(chosen(protocol, [records[0]] * 10, draw)) for draw in "abcdef"}) > 1  # not known before the submission
    assert len(chosen(protocol, records, "", 1.0)) == 6 + 3


def edit(guest, change) -> None:
    [path] = (guest / "mine").glob("*/*.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def better_scores(content):
    for which in ("default", "tuned"):
        for scores in content[which]["scores"].values():
            scores[:] = [min(1.0, score + 0.05) for score in scores]


def other_winner(content):
    content["tuned"]["trial"] = (content["tuned"]["trial"] + 1) % 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (better_scores, "DIFFERS: halved in csbm"),
        (other_winner, "which is not the best on validation"),
        (lambda content: content["trials"][1]["values"].update(lr=0.2), "trial 2 is not the one that the protocol draws"),
        (lambda content: content["tuned"]["scores"]["received"].pop(), "2 received scores of the winner, not 3"),
        (lambda content: content.update(tuned=None), "not complete"),
        (lambda content: content.update(protocol="0" * 12), "made for another protocol, method file or space"),
    ],
)
def test_cells_that_were_touched_do_not_pass(change, said, guest, capsys):
    edit(guest, change)
    assert checked() == 1
    assert said in capsys.readouterr().out


def test_submitted_cells_are_shown_and_what_does_not_fit_is_left_out(guest, capsys):
    protocol = read_protocol(guest / "protocol.yaml")
    shutil.copytree(guest / "mine", guest / "stored" / "submitted" / "halved")
    board = whole_board(guest / "stored", protocol)
    assert [guest.name for guest in board.guests] == ["halved"] and list(board.entries) == ["halved", "fedavg"] and not board.others
    assert board.status().startswith("1 of 4 cells are complete")
    show_board(["stored", "show=scores", "protocol=protocol.yaml"])
    assert "halved" in capsys.readouterr().out
    with (guest / "stored/submitted/halved/halved_method.py").open("a") as file:
        file.write("# edited\n")
    assert whole_board(guest / "stored", protocol).entries.keys() == {"fedavg"}
    other = replace(protocol, sampler_seed=1)
    assert len(whole_board(guest / "stored", other).others) == 2
