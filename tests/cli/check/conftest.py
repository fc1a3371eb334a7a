from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fgl_bench.cli.main import main

Spoken = Callable[..., tuple[int, str, str]]


@pytest.fixture
def spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Spoken:
    """A function that runs ``fgl-bench`` with its arguments in the test's folder and returns status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fgl-bench", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setenv("FGL_BENCH_SWEEP_DIR", str(tmp_path / "sweep"))
    return run
