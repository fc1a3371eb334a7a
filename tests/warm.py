"""The command in a process of its own that need not import torch first: a fork of one that did so once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.hostile.worker", "tests.ready"])
ROOT = Path(__file__).parents[1]
MODULES = [entry for entry in sys.path if entry]  # of the suite, before tests add folders of their own


def environment(folder: Path, **extra: str) -> dict[str, str]:
    """What the command sees: no data sets, its cache in ``folder``."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("FGL_BENCH", "HYDRA"))}
    return {**clean, "PYTHONPATH": str(ROOT / "src"), "FGL_BENCH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", **extra}


@contextmanager
def begun(folder: Path, *arguments: str, **extra: str) -> Iterator[BaseProcess]:
    """``fgl-bench`` under way in ``folder``; its output is in ``stdout`` and ``stderr`` there. It is killed at the end."""
    paths = [str(folder / "stdout"), str(folder / "stderr")]
    process = CONTEXT.Process(target=_run, args=(str(folder), arguments, environment(folder, **extra), paths, MODULES))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def command(folder: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run ``fgl-bench`` in ``folder``; ``extra`` are environment variables."""
    with tempfile.TemporaryDirectory() as name:
        paths = [f"{name}/stdout", f"{name}/stderr"]
        process = CONTEXT.Process(target=_run, args=(str(folder), arguments, environment(folder, **extra), paths, MODULES))
        process.start()
        process.join(200)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(list(arguments), 200)
        stdout, stderr = (Path(path).read_text(encoding="utf-8") for path in paths)
    return subprocess.CompletedProcess(list(arguments), process.exitcode, stdout, stderr)


def _run(folder: str, arguments: Sequence[str], variables: Mapping[str, str], paths: Sequence[str], modules: Sequence[str]) -> None:
    """The forked process: like a new one, but for what it has imported."""
    import torch

    from fgl_bench.cli import main as cli

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its background jobs deaf to Ctrl-C
    os.chdir(folder)
    for number, path in enumerate(paths, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # what TMPDIR says now
    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    sys.argv = ["fgl-bench", *arguments]
    sys.path[:] = modules
    try:
        cli.main()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # as a new process: before it waits for its children, which joblib ends here
