"""A process of the test bed: runs the command in itself, each input in a new folder, and says what came of it."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 (before the first input, like all that a run imports: it takes seconds)
import torch
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins

import fgl_bench.runner.run  # noqa: F401
from fgl_bench.cli import main as cli
from fgl_bench.config.schema import register_all

Plugins.instance()
register_all(ConfigStore.instance())


@dataclass(frozen=True)
class Answer:
    """What came of an input.

    Attributes:
        status: of the command's end.
        summaries: of the runs below ``results``, in order of their folders.
        left: files that are new in the current folder, caches apart.
    """

    status: int
    stdout: str
    stderr: str
    summaries: list[dict]
    left: list[str]


def serve(pipe: Connection) -> None:
    """Answer inputs (arguments, files, variables) until the other end is gone."""
    torch.set_num_threads(1)
    compose_once()
    gc.freeze()  # what imports have made
    while True:
        try:
            arguments, files, variables = pipe.recv()
        except EOFError:
            return
        pipe.send(answer(arguments, files, variables))


def compose_once() -> None:
    """Spare half the time: Hydra composes a configuration twice, the first time only to look up ``hydra.mode``."""
    look_up = Hydra.get_mode

    def mode(hydra: Hydra, config_name: str, overrides: list[str]) -> Any:
        return look_up(hydra, config_name, overrides) if any("hydra" in text for text in overrides) else None

    Hydra.get_mode = mode


def answer(arguments: Sequence[str], files: Mapping[str, Any], variables: Mapping[str, str | None]) -> Answer:
    """Run the command in a folder that holds ``files`` and nothing else."""
    before, where = (dict(os.environ), list(sys.argv), list(sys.path), set(sys.modules)), os.getcwd()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name, "here")
        folder.mkdir()
        for path, content in files.items():
            write(folder / path, content)
        present = listing(folder)
        os.chdir(folder)
        clean = {key: value for key, value in before[0].items() if not key.startswith(("FGL_BENCH", "HYDRA"))}
        changed = {**clean, "FGL_BENCH_CACHE": f"{name}/cache", "FGL_BENCH_DATA": "data", **variables}
        os.environ.clear()
        os.environ.update({key: value for key, value in changed.items() if value is not None})
        stdout, stderr = io.StringIO(), io.StringIO()
        sys.argv = ["fgl-bench", *arguments]
        sys.path[:] = [entry for entry in sys.path if entry and Path(entry).is_absolute()]
        try:
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), warnings.catch_warnings():
                status = ended()
            return Answer(status, stdout.getvalue(), stderr.getvalue(), summaries(folder), sorted(listing(folder) - present))
        finally:
            os.chdir(where)
            os.environ.clear()
            os.environ.update(before[0])
            sys.argv, sys.path[:] = before[1], before[2]
            for module in set(sys.modules) - before[3]:  # of the input's own
                if (getattr(sys.modules[module], "__file__", None) or "").startswith(name):
                    del sys.modules[module]
            torch.set_num_threads(1)


def ended() -> int:
    """The status with which the command ends; what nobody has caught counts as a crash, with its traceback."""
    try:
        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
        return -1
    return 0


def write(path: Path, content: Any) -> None:
    """A text, bytes, or what a callable writes to the path; None makes a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.mkdir()
    elif callable(content):
        content(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content, encoding="utf-8")


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"}


def summaries(folder: Path) -> list[dict]:
    """Of the runs; what was kept beside one may be anything."""
    found = (path for path in sorted(folder.glob("results/**/summary.json")) if ".kept-" not in str(path))
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]
