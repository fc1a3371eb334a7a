"""What a process meets and leaves: plugins in the current folder, signals, crashes while writing, a full disk, no home."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fgl_bench.results import store
from fgl_bench.results.trackers.mlflow import MLflow
from fgl_bench.utils.masking import masked, without_secrets
from tests.hostile.bed import T
from tests.results.test_store import HASH, write
from tests.warm import CONTEXT, ROOT, command, environment

RUN = (*T.split(), "progress=false")
PLUGIN = "from pathlib import Path\nPath('ran').touch()\n"


COMMANDS = [RUN, ("-m", *RUN), ("tune", "nonsense"), ("ls",)]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_plugin_in_the_current_folder_is_not_executed(arguments: tuple[str, ...], tmp_path: Path) -> None:
    for path in ("hydra_plugins/x.py", "hydra_plugins/fgl_bench_ray_launcher.py", "hydra_plugins/__init__.py"):
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(PLUGIN, encoding="utf-8")
    command(tmp_path, *arguments)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.nightly)])
def test_a_signal_ends_a_sweep_in_one_line_and_leaves_no_folder(name: str, tmp_path: Path) -> None:
    number, temporary = signal.Signals[name], tmp_path / "temporary"
    temporary.mkdir()
    line = [
        sys.executable,
        "-u",
        "-m",
        "fgl_bench.cli.main",
        "-m",
        *T.split(),
        "trips=100000000",
        "rounds=null",
        "progress=false",
        "checkpoint_minutes=null",
    ]
    process = subprocess.Popen(
        line, cwd=tmp_path, env=environment(tmp_path, TMPDIR=str(temporary)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for text in process.stdout:  # the job has begun
            if text == "sweep of 1 run\n":
                break
        time.sleep(1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert len(errors.splitlines()) == 1 and errors.startswith(f"fgl-bench: ended by {name}; kept: nothing of this run")
    assert not list(temporary.iterdir())


POINTS = 10  # more than calls that writing makes


def write_and_crash(folder: Path, at: int) -> None:
    """Write a run, in a process that ends with status 9 at the call number ``at`` that changes a file."""
    calls: list[Any] = []

    def crashing(real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            calls.append(real)
            if len(calls) > at:
                os._exit(9)
            return real(*args, **more)

        return call

    store.os.replace = crashing(os.replace)
    store.Path.write_text = crashing(Path.write_text)
    store.np.savez_compressed = crashing(store.np.savez_compressed)
    write(folder)


@pytest.mark.parametrize(
    "before", ["a run", *(pytest.param(before, marks=pytest.mark.nightly) for before in ("nothing", "something else"))]
)
def test_after_a_crash_at_any_point_of_writing_the_next_run_of_the_place_clears_up(before: str, tmp_path: Path) -> None:
    folders = [tmp_path / str(at) / HASH for at in range(POINTS)]
    for folder in folders if before != "nothing" else ():
        write(folder)
        if before == "something else":
            (folder / "summary.json").write_text("{}", encoding="utf-8")
    crashes = [CONTEXT.Process(target=write_and_crash, args=(folder, at)) for at, folder in enumerate(folders)]
    for process in crashes:
        process.start()
        process.join()
    statuses = [process.exitcode for process in crashes]
    assert statuses[0] == 9 and statuses[-1] == 0, "no crash, or writing has more calls than points"
    assert any(list(folder.parent.glob(".*")) for folder in folders), "nothing was left over"
    for folder, status in zip(folders, statuses, strict=True):
        store.clear_leftovers(folder)
        assert not list(folder.parent.glob(".*"))
        others = [path for path in folder.parent.iterdir() if path != folder]
        assert store.is_complete(folder) or before != "a run" and status == 9
        assert not others or before == "something else"
        if before == "something else":
            assert any((path / "summary.json").read_text(encoding="utf-8") == "{}" for path in (folder, *others) if path.exists())


@pytest.mark.nightly
def test_a_disk_that_is_full_at_the_end_says_what_is_lost_in_a_line(tmp_path: Path) -> None:
    """Files of more than 300 KB cannot be written: the check before training passes, the history does not."""
    line = [sys.executable, "-m", "fgl_bench.cli.main", *RUN, "rounds=1200", "seeds=[0,1,2,3]", "eval_every=1"]
    size = 300_000

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    result = subprocess.run(
        line, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=200, preexec_fn=limited, check=False
    )  # fmt: skip
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "results_dir: cannot write" in result.stderr and "is lost" in result.stderr
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file() or path.name.startswith(".")]


def test_passwords_are_masked() -> None:
    assert masked("mysql://user:secret@host/db") == "mysql://user:***@host/db"
    assert masked("failed: http://u:p@ss@host/?token=abc&x=1 (401)") == "failed: http://u:***@host/?token=***&x=1 (401)"
    assert masked("http://host:80/path dataset=cora") == "http://host:80/path dataset=cora"
    for text in ("https://s3@host/x", "http://h/?sig=s3&x=1", "http://h/?x=1&key=s3", "http://h/?access_token=s3", "client_secret=s3",
                 "tracker.api_key='s3 s3'", '+dataset.password="s3"'):  # fmt: skip
        assert "s3" not in masked(text) and "***" in masked(text)
    for text in ("dataset.path=/a/key=1.npz", "design=5", "algorithm.tokens=3", "mail me@host", "model.keys=4"):
        assert masked(text) == text
    tracker = MLflow("mysql://user:se%40cret@host", "x")
    assert without_secrets("access denied for user with se@cret", tracker) == "access denied for user with ***"


QUIET = """
from dataclasses import dataclass
from fgl_bench.results.trackers.none import NoTracker

@dataclass(frozen=True)
class Quiet(NoTracker):
    token: str
    client_secret: str
    uri: str
"""


def test_secrets_are_in_none_of_the_files_that_a_sweep_leaves(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(QUIET, encoding="utf-8")
    (tmp_path / "conf" / "tracker").mkdir(parents=True)
    text = "_target_: own.Quiet\ntoken: null\nclient_secret: null\nuri: null\n"
    (tmp_path / "conf" / "tracker" / "quiet.yaml").write_text(text, encoding="utf-8")
    secrets = ("tracker.token=s3cr3t", "tracker.client_secret=s3cr3t", 'tracker.uri="https://s3cr3t@h/?sig=s3cr3t"')
    line = ("--config-dir", "conf", *RUN, "tracker=quiet", *secrets)
    hydra = ("hydra.sweep.dir=sweep", "hydra.output_subdir=.hydra", "hydra.sweep.subdir=${hydra.job.num}")
    ways = (("-m", *line, *hydra, "lr=0.1,0.2"), (*line, "--cfg", "job"), (*line, "lr=nan"))
    said = [command(tmp_path, *arguments) for arguments in ways]
    assert [each.returncode for each in said] == [0, 0, 1] and "***" in said[1].stdout
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"multirun.yaml", "overrides.yaml", "config.yaml", "summary.json"} <= {path.name for path in files}
    written = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in files)
    assert "s3cr3t" not in written + "".join(each.stdout + each.stderr for each in said)


@pytest.mark.nightly
@pytest.mark.parametrize("words", [("-m", "fgl_bench.cli.main", *RUN), ("-c", "import fgl_bench; fgl_bench.run('fedavg', 'csbm')")])
@pytest.mark.parametrize("closed", ["conf", "conf/hydra", "conf/dataset", "conf/config.yaml"])
def test_a_user_who_may_not_read_the_configuration_is_told_which_part(closed: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Root may read all, but not without two of its capabilities."""
    without = [f"--{kind}=-dac_override,-dac_read_search" for kind in ("bounding-set", "inh-caps")] if os.getuid() == 0 else []
    start = [shutil.which("setpriv") or "false", *without] if without else []
    if subprocess.run([*start, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs another user, or util-linux's setpriv")
    for folder in ("src", "conf"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    mode = (tmp_path / closed).stat().st_mode
    (tmp_path / closed).chmod(0)
    variables = environment(tmp_path, PYTHONPATH=str(tmp_path / "src"))
    done = subprocess.run(
        [*start, sys.executable, *words], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100, check=False
    )
    (tmp_path / closed).chmod(mode)
    *before, last = done.stderr.splitlines()
    assert done.returncode == 1 and f"{tmp_path / closed}: " in last and (words[0] == "-c" or not before)
    assert not (tmp_path / "results").exists()
