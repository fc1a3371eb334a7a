"""Files that a user names by ``out=``, and files in folders that several users share."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from fgl_bench.errors import UserError
from fgl_bench.results.plots.draw import target
from fgl_bench.utils.files import home, replacing, write_out, write_whole
from tests.hostile.worker import answer
from tests.results.stored_runs import store


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    store(tmp_path / "runs", "fedavg")
    return tmp_path / "runs"


def test_a_device_stays_one(runs: Path) -> None:
    said = answer(["table", str(runs), "out=/dev/null", "format=csv"], {}, {})
    assert said.status == 0 and said.stdout == "written: /dev/null\n"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_pipe_is_written_to(runs: Path, tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe.csv", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert answer(["table", str(runs), f"out={pipe}"], {}, {}).status == 0
    reader.join(10)
    assert read[0].startswith("algorithm,") and stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(there: bool, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    file, link = tmp_path / "docs/table.md", tmp_path / "link.md"
    if there:
        file.write_text("old")
    link.symlink_to("docs/table.md")
    assert answer(["table", str(runs), f"out={link}"], {}, {}).status == 0
    assert link.is_symlink() and file.read_text().startswith("**test accuracy")
    assert os.listdir(tmp_path / "docs") == ["table.md"]


def test_what_cannot_be_written_is_refused_and_left_as_it_is(runs: Path, tmp_path: Path) -> None:
    file, loop = tmp_path / "kept.csv", tmp_path / "loop.csv"
    file.write_text("precious")
    file.chmod(0o444)
    loop.symlink_to(loop)
    (tmp_path / "folder.csv").mkdir()
    for path, reason in ((file, "read-only"), (loop, "ymbolic link"), (tmp_path / "folder.csv", "directory"), (file / "x.csv", "irectory")):
        said = answer(["table", str(runs), f"out={path}"], {}, {})
        assert said.status == 1 and "out=" in said.stderr and "cannot be written" in said.stderr, said.stderr
        assert reason in said.stderr and "Traceback" not in said.stderr
    assert file.read_text() == "precious" and loop.is_symlink()


def test_a_figure_does_not_take_the_name_of_a_device() -> None:
    with pytest.raises(UserError, match="out=/dev/null"):
        target("/dev/null", "pdf")


@pytest.mark.parametrize(
    "line",
    [
        "table RUNS out=~nobody.here/x.md", "plot bars RUNS out=~nobody.here/x", "report RUNS out=~nobody.here/x.html",
        "leaderboard out=~nobody.here/x.md", "leaderboard figures=~nobody.here", "report RUNS placed=~nobody.here", "table ~nobody.here",
        "--config-dir ~nobody.here ls", "check ~nobody.here/x.py",
    ],
)  # fmt: skip
def test_an_unknown_home_directory_is_refused(line: str, runs: Path) -> None:
    said = answer(line.replace("RUNS", str(runs)).split(), {}, {})
    assert said.status == 1 and len(said.stderr.splitlines()) == 1 and "~nobody.here" in said.stderr and "Traceback" not in said.stderr
    assert not said.left


def test_a_home_directory_is_found() -> None:
    assert home("out", "~/x") == Path.home() / "x" and home("out", "./~x") == Path("./~x")


def test_a_file_in_a_shared_folder_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "cache.json"
    victim.write_text("precious")
    path.symlink_to(victim)
    names = []
    for _ in range(2):
        with replacing(path) as part:
            names.append(part.name)
            part.write_text("new")
    assert victim.read_text() == "precious" and path.read_text() == "new" and not path.is_symlink()
    assert names[0] != names[1] and str(os.getpid()) not in names[0].split("-")
    with pytest.raises(KeyError), replacing(path):
        raise KeyError
    assert path.read_text() == "new" and sorted(os.listdir(tmp_path)) == ["cache.json", "victim"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "new", "x")
    (tmp_path / "plain").write_text("x")
    write_out(tmp_path / "out", b"x")
    modes = {(tmp_path / name).stat().st_mode for name in ("a/new", "plain", "out")}
    assert len(modes) == 1
