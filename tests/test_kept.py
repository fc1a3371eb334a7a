"""Configurations that are composed once and read by later processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fgl_bench.config import kept
from fgl_bench.config.compose import Composer
from fgl_bench.config.kept import Kept
from fgl_bench.config.parts import Parts
from fgl_bench.papers.plan import placed
from tests.results.located import located

COMMANDS = [
    ("experiment=fedsa_gcl/table3", "dataset=cora", "algorithm=fedgta"),
    ("experiment=fedgta/table3", "dataset=photo", "algorithm=fedavg", "lr=0.02"),
    ("dataset=csbm", "algorithm=fedprox", "algorithm.mu=0.25", "rounds=7"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Composer() as composer:
        parts = Parts(composer, Kept(tmp_path))
        for command in COMMANDS:
            parts(command)
        parts.kept.write()
    return tmp_path


def composed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("composed anew")

    monkeypatch.setattr(Composer, "whole", refuse)


def test_what_was_kept_is_not_composed_and_is_the_same_run(folder, monkeypatch):
    with Composer() as composer:
        expected = [located(composer(command)) for command in COMMANDS]
        composed_anew(monkeypatch)
        parts = Parts(composer, Kept(folder))
        parts.expect(COMMANDS)
        assert [placed(parts(command)) for command in COMMANDS] == expected


@pytest.mark.parametrize("content", ["", "[1, 2]", "{", '{"a": 3}', "\x00"])
def test_a_damaged_file_costs_time_only(folder, content):
    [path] = folder.iterdir()
    path.write_text(content, encoding="utf-8")
    with Composer() as composer:
        parts = Parts(composer, Kept(folder))
        assert placed(parts(COMMANDS[0])) == located(composer(COMMANDS[0]))
        parts.kept.write()
    assert len(json.loads(path.read_text(encoding="utf-8"))) >= 1


def test_another_environment_or_source_has_a_file_of_its_own(folder, monkeypatch, tmp_path):
    before = kept.state()
    monkeypatch.setenv("FGL_BENCH_DATA", "elsewhere")
    assert kept.state() != before
    monkeypatch.undo()
    assert kept.state() == before
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text("x: 1")
    monkeypatch.setattr(kept, "config_folder", lambda: tmp_path / "conf")
    one = kept.state()
    (tmp_path / "conf" / "a.yaml").write_text("x: 2")
    assert kept.state() != one


def test_groups_of_a_users_own_are_composed(folder, tmp_path):
    (tmp_path / "own" / "split").mkdir(parents=True)
    with Composer([tmp_path / "own"]) as composer:
        assert Parts(composer, Kept(folder)).kept.path is None


@pytest.mark.parametrize("named", [None, "somewhere/else"])
def test_the_folder_is_the_command_line_s_cache(named, monkeypatch):
    monkeypatch.delenv("FGL_BENCH_CACHE", raising=False)
    if named is not None:
        monkeypatch.setenv("FGL_BENCH_CACHE", named)
    with Composer() as composer:
        assert kept.default_folder() == Path(composer([]).cache_dir).expanduser()


def test_files_of_earlier_states_go(folder):
    [newest] = folder.iterdir()
    for number in range(20):
        old = folder / f"configurations_{number}.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    again = Kept(folder)
    again.add(["x"], {}, {})
    again.write()
    assert len(list(folder.iterdir())) == kept.OLDEST and newest.is_file()
