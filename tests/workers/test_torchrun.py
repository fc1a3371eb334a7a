"""Runs of several processes, started as a user starts them, against the same runs of one."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fgl_bench
from fgl_bench.errors import UserError
from fgl_bench.utils.world import launched
from tests.quick import SMALL
from tests.warm import ROOT, environment

TINY = {key.replace(".", "__"): value for key, value in SMALL.items()} | {
    "dataset": "csbm_cora", "num_clients": 5, "seeds": [0, 1], "rounds": 3, "local_epochs": 2, "dtype": "float64",
}  # fmt: skip
BY_CLIENTS = ("fedavg", "fedprox", "scaffold", "fedgta", "fed_pub", "d_psgd", "dfed_sst")


@contextmanager
def torchrun(size: int, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A run under way in ``folder``; whatever is left of it is killed at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}", f"--master-port={port}", *arguments]
    variables = environment(folder) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    pipe = subprocess.PIPE
    with subprocess.Popen(line, cwd=folder, env=variables, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def history(folder: Path) -> np.ndarray:
    with (folder / "history.csv").open(encoding="utf-8", newline="") as file:
        return np.array([[float(value or "nan") for value in row] for row in list(csv.reader(file))[1:]])


def made(jobs: Sequence[dict[str, Any]], size: int, folder: Path) -> list[tuple[Path, Path]]:
    """The folders of the runs of one process and of ``size``."""
    (folder / "jobs.json").write_text(json.dumps([{**job, "results_dir": "many"} for job in jobs]), encoding="utf-8")
    with torchrun(size, folder, "-m", "tests.workers.job", "jobs.json") as process:
        one = [{key: value for key, value in job.items() if key != "shard"} | {"results_dir": str(folder / "one")} for job in jobs]
        folders = [fgl_bench.run(**job, cache_dir=str(folder / "cache_of_one")).folder for job in one]
        stdout, stderr = process.communicate(timeout=200)
        assert process.returncode == 0, stdout + stderr
    return [(each, folder / "many" / each.relative_to(folder / "one")) for each in folders]


@pytest.mark.parametrize("size", (2, pytest.param(4, marks=pytest.mark.nightly)))
def test_processes_give_the_scores_of_one(size: int, tmp_path: Path) -> None:
    jobs = [{**TINY, "algorithm": name, "shard": "clients"} for name in (BY_CLIENTS if size == 2 else BY_CLIENTS[2:])]
    by_seeds = [{**TINY, "algorithm": "fedsa_gcl", "shard": "seeds"}] if size == 2 else [{**TINY, "algorithm": "fedavg", "shard": "auto"}]
    single = [{**TINY, "algorithm": "fedavg", "dtype": "float32", "shard": "clients"}] if size == 2 else []
    folders = made([*jobs, *by_seeds, *single], size, tmp_path)
    sent = []
    for number, (one, many) in enumerate(folders):
        exact = number < len(jobs) + len(by_seeds)
        np.testing.assert_allclose(history(many), history(one), rtol=1e-9 if exact else 0.05, atol=1e-9 if exact else 0.02)
        first, second = (json.loads((folder / "summary.json").read_text(encoding="utf-8")) for folder in (one, many))
        assert (first["world_size"], first["worker_bytes"], second["world_size"]) == (1, 0, size)
        alike = ("test", "bytes", "partition_hash", "graph", "label_counts", "config_hash")
        assert not exact or all(first[key] == second[key] for key in alike)
        shared = size == 4 or number != len(jobs)
        assert (second["worker_bytes"] > 0) is shared, "only who shares the clients of a seed sends anything"
        sent.append(second["worker_bytes"])
    if size == 2:
        assert sent[0] == sent[1] > sent[-1], "FedProx sends what FedAvg does, which in single precision is less"


ARGUMENTS = [f"{key.replace('__', '.')}={json.dumps(value) if key == 'seeds' else value}" for key, value in TINY.items()]


@pytest.mark.nightly
def test_one_worker_speaks_for_all(tmp_path: Path) -> None:
    with torchrun(2, tmp_path, "-m", "fgl_bench", "algorithm=fedavg", *ARGUMENTS) as process:
        stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    assert stdout.count("test accuracy in %") == stdout.count("written: ") == 1
    assert "Error" not in stderr and not list(tmp_path.rglob(".*"))
    assert len(list(tmp_path.rglob("summary.json"))) == 1


def workers(folder: Path, rank: int) -> list[int]:
    """The processes of this rank among those that were started in ``folder``, a child after its parent."""
    parents = {}
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and {f"RANK={rank}", f"FGL_BENCH_CACHE={folder / 'cache'}"} <= set(
                (process / "environ").read_text(encoding="utf-8").split("\0")
            ):
                parents[int(process.name)] = int((process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return sorted(parents, key=lambda pid: parents[pid] in parents)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_worker_that_dies_ends_the_run_with_one_line(tmp_path: Path) -> None:
    long = [text for text in ARGUMENTS if not text.startswith("rounds=")] + ["rounds=1000000", "shard=clients", "progress=false"]
    with torchrun(2, tmp_path, "-m", "fgl_bench", "algorithm=fedavg", *long) as process:
        while not list(tmp_path.glob("cache/partition_*")):  # they have met
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        both = workers(tmp_path, 1)
        assert len(both) == 2, "the worker, and who watches it"
        os.kill(both[1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
        end = time.monotonic() + 20
        while workers(tmp_path, 0) and time.monotonic() < end:
            time.sleep(0.1)
        assert not workers(tmp_path, 0), "nobody is left"
    ours = [line for line in stderr.splitlines() if line.startswith("fgl-bench:")]
    assert ours == ["fgl-bench: error: worker 1 of 2 was killed by signal 9 (SIGKILL)"]
    assert process.returncode != 0 and not list(tmp_path.rglob("summary.json"))


WATCHED = """
import os, signal, sys, time
from fgl_bench.utils.processes import watched
fork = os.fork
def signalled():
    child = fork()
    if child and len(sys.argv) > 2:
        os.kill(os.getpid(), int(sys.argv[2]))
    return child
os.fork = signalled
watched("worker 1 of 2")
print(os.getpid(), flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("seconds", "number", "child", "status", "says"),
    [
        ("0", None, False, 3, ""),
        ("60", signal.SIGKILL, True, 137, "fgl-bench: error: worker 1 of 2 was killed by signal 9 (SIGKILL)\n"),
        ("60", signal.SIGTERM, True, 143, "fgl-bench: error: worker 1 of 2 was killed by signal 15 (SIGTERM)\n"),
        ("60", signal.SIGTERM, False, 143, ""),  # its launcher ends it
        ("60", signal.SIGUSR1, False, 138, ""),  # the time of a job is almost up
    ],
)
def test_who_watches_a_worker_ends_with_its_status(seconds: str, number: int | None, child: bool, status: int, says: str) -> None:
    line = [sys.executable, "-c", WATCHED, seconds]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        if number is not None:
            os.kill(worker if child else process.pid, number)
        stderr = process.communicate(timeout=60)[1]
    assert (process.returncode, stderr) == (status, says)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_before_the_child_is_known_reaches_it(number: int) -> None:
    line = [sys.executable, "-c", WATCHED, "20", str(int(number))]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(line, capture_output=True, text=True, env=variables, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (128 + number, "")


def test_without_a_launcher_there_is_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert launched() == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(UserError, match="RANK=3 .* WORLD_SIZE=3"):
        launched()
