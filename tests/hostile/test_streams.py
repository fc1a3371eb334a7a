"""Standard streams that are closed, full, read by nobody or of few letters."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.results.stored_runs import store

COMMAND = f"{shlex.quote(sys.executable)} -m fgl_bench"


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment = {**clean, "FGL_BENCH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", **variables}
    text = line.replace("fgl-bench", COMMAND)
    return subprocess.run(["bash", "-o", "pipefail", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("fgl-bench table runs > /dev/full", 1, "No space left on device"),
        ("fgl-bench --help | true", 0, ""),
        ("fgl-bench table nowhere 2>&-", 1, ""),
    ],
)
def test_the_end_is_one_line_and_no_traceback(line: str, status: int, message: str, unbuffered: str, tmp_path: Path) -> None:
    store(tmp_path / "runs", "fedavg")
    done = shell(line, tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, len(done.stderr.splitlines())) == (status, int(bool(message))), done.stderr
    assert message in done.stderr


def test_signs_that_a_stream_lacks_are_escaped(tmp_path: Path) -> None:
    store(tmp_path / "runs", "fedavg")
    done = shell("fgl-bench table runs", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and r"55.0 \xb1 63.5" in done.stdout
