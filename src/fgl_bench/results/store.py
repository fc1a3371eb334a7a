"""Run directories, named by configuration and written atomically."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fgl_bench.config.identity import CORRECTED, canonical_names, corrections, without_later
from fgl_bench.errors import UserError
from fgl_bench.results.saved_models import write_models
from fgl_bench.results.scored import score_trained
from fgl_bench.results.shapes import flaw, history_flaw, refused, summary_flaw
from fgl_bench.utils.files import leftovers, scratch, umask
from fgl_bench.utils.masking import masked_config
from fgl_bench.utils.sources import code_sums, files_of

SCHEMA_VERSION = 2
READABLE = (1, SCHEMA_VERSION)  # version 1.0 is comparable with itself; results/migrate.py converts it
# Keys that change no result: runs that differ only in these are the same run.
PRESENTATION = (
    "device", "threads", "memory_budget_gb", "seeds_per_chunk", "out_of_core", "shard", "data_dir", "results_dir", "cache_dir",
    "overwrite", "progress", "selection", "average", "tracker", "checkpoint_minutes", "keep_models",
)  # fmt: skip


# Keys that a stored history answers. Identities contain their default from when they were part of it.
AFTERWARDS = {"targets": [0.5, 0.6, 0.7, 0.8]}


def identity(config: Mapping[str, Any], rounds: int, trips: int, data: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return everything that determines the results: the resolved configuration without presentation keys, the budget and file contents.

    ``code`` holds checksums of the sources of external classes and dates of corrections to the package's classes; ``data`` holds checksums
    of raw files. Both are absent if empty.

    Args:
        config: the resolved configuration.
        data: checksums of raw files unknown to the package, see :func:`fgl_bench.data.sums.fingerprint`.
    """
    known = masked_config({key: value for key, value in config.items() if key not in PRESENTATION})  # stored unencrypted
    named = {key: canonical_names(value) for key, value in known.items()}
    named |= {key: value for key, value in AFTERWARDS.items() if key in named}
    chosen = {key: value for key, value in without_later(named).items() if value != {}}
    content = {"code": code_sums(chosen) | corrections(chosen), "data": dict(data or {})}
    return {**chosen, "rounds": rounds, "trips": trips, **{key: sums for key, sums in content.items() if sums}}


def config_hash(what: Mapping[str, Any], version: int = SCHEMA_VERSION) -> str:
    """Return twelve hex digits of the hash of :func:`identity`. 1.0 and 1 are equal, except in ``version`` 1."""
    return hashlib.sha256(json.dumps(what if version == 1 else with_whole_numbers(what), sort_keys=True).encode()).hexdigest()[:12]


def with_whole_numbers(value: Any) -> Any:
    """Return ``value`` with integral floats converted to integers."""
    if isinstance(value, Mapping):
        return {key: with_whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def run_folder(results: Path, dataset: str, split: str, clients: int, scenario: str, algorithm: str, digest: str) -> Path:
    """``<results>/<dataset>/<split>-<clients>/<scenario>/<algorithm>/<hash>``."""
    return results / dataset / f"{split}-{clients}" / scenario / algorithm / digest


class Untrusted(Exception):
    """Raised for a run directory or cell that cannot be used; the message is the reason."""


def checked(text: str, name: str | None = None) -> dict:
    """Parse the summary of a run or cell and check that it is valid and matches its configuration.

    Args:
        name: the hash in the name of its folder or file; None to skip this check.

    Raises:
        Untrusted: the summary is damaged, of another version, or of another configuration.
    """
    try:
        summary = json.loads(text, parse_constant=refused)
    except (ValueError, RecursionError) as error:
        raise Untrusted(f"not readable as json ({error})") from error
    if not isinstance(summary, dict) or "schema_version" not in summary or not isinstance(summary.get("test"), dict):
        raise Untrusted("no summary of a run")
    if summary["schema_version"] not in READABLE:
        raise Untrusted(f"schema_version {summary['schema_version']!r}, this version writes {SCHEMA_VERSION}")
    digest = summary.get("config_hash")
    if isinstance(summary.get("config"), dict) and config_hash(summary["config"], summary["schema_version"]) != digest:
        raise Untrusted(f"its configuration does not have the hash {digest}")
    if name is not None and digest != name:
        raise Untrusted(f"it is the run {digest}, not {name}")
    wrong = summary_flaw(summary)
    if wrong is not None:
        raise Untrusted(wrong)
    if score_trained(summary) == "never" and set(summary["test"]["trained"]["per_seed"]) != {None}:
        raise Untrusted("its trained models' scores are those of one client only, as before split.score_trained; overwrite=true repeats it")
    return summary


def read_summary(folder: Path) -> dict | None:
    """Return the summary of the run in ``folder``; None if the folder does not exist.

    Raises:
        Untrusted: the folder is not a complete run of the configuration in its name.
    """
    try:
        text = (folder / "summary.json").read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if folder.exists():
            raise Untrusted("no summary.json in it") from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Untrusted(f"summary.json cannot be read ({error})") from error
    summary = checked(text, Path(os.path.abspath(folder)).name)
    for name in ("config.yaml", "history.csv"):
        if not (folder / name).is_file():
            raise Untrusted(f"no {name} in it")
    for wrong in (flaw(summary, "run"), history_flaw(folder / "history.csv", summary["seeds"])):
        if wrong is not None:
            raise Untrusted(wrong)
    damaged = [path.name for path in folder.glob("*.npz") if not zipfile.is_zipfile(path)]
    if damaged:
        raise Untrusted(f"{damaged[0]} is no archive of arrays")
    return summary


def is_complete(folder: Path) -> bool:
    """Return True if the run in ``folder`` is complete: its summary is valid and matches its configuration."""
    try:
        return read_summary(folder) is not None
    except Untrusted:
        return False


def write_run(
    folder: Path,
    config: str,
    summary: dict,
    rows: list[dict],
    arrays: dict[str, np.ndarray],
    final_state: dict[str, np.ndarray] | None = None,
    models: dict[str, np.ndarray] | None = None,
    which: str = "",
) -> None:
    """Write a run directory atomically: files are written to a temporary folder next to it, which is then renamed.

    An earlier complete run is replaced. Anything else at this path is renamed, not deleted.

    Args:
        models: parameters by name; ``which`` is their selection, see :mod:`fgl_bench.results.saved_models`.

    Raises:
        UserError: the results directory cannot be written.
    """
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(scratch(f".{folder.name}-", folder.parent))
        except OSError as error:
            raise UserError(f"results_dir: cannot write {folder.parent} ({error.strerror}); choose a folder that can be written") from error
        stack.callback(settle, temporary, folder)
        run = temporary / "new"
        run.mkdir()
        (run / "config.yaml").write_text(config, encoding="utf-8")
        with (run / "history.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([list(rows[0]), *(row.values() for row in rows)])
        for name, named in (("mixing.npz", arrays), ("final_state.npz", final_state)):
            if named:
                np.savez_compressed(run / name, **named)  # type: ignore[arg-type]  # none is called allow_pickle
        if models is not None:
            write_models(run, models, which).chmod(0o666 & ~umask())
        (run / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        while run.exists():
            try:
                os.replace(run, folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                with suppress(FileNotFoundError):  # another process was faster
                    os.replace(folder, Path(tempfile.mkdtemp(prefix="", dir=temporary)) / folder.name)


def settle(temporary: Path, folder: Path) -> None:
    """Move displaced content out of the temporary folder: back, or next to the run. A replaced complete run stays."""
    for displaced in temporary.glob(f"*/{folder.name}"):
        if not is_complete(displaced):
            os.replace(displaced, folder.with_name(f"{folder.name}.kept-{displaced.parent.name}"))
        elif not folder.exists():
            os.replace(displaced, folder)


def clear_leftovers(folder: Path) -> None:
    """Remove temporary folders of killed processes that were writing the run ``folder``; restore a complete run in them."""
    with leftovers(f".{folder.name}-", folder.parent) as folders:
        for temporary in folders:
            settle(temporary, folder)
            shutil.rmtree(temporary, ignore_errors=True)


def superseded(folder: Path, what: Mapping[str, Any], raw: Mapping[str, Path]) -> str | None:
    """Describe the latest run next to ``folder`` that differs only in file contents or corrections; None without one.

    Args:
        folder: the directory of the new run.
        what: its identity, see :func:`identity`.
        raw: the dataset's raw files by name.
    """

    def content(config: Mapping[str, Any]) -> set[tuple[str, str, str]]:
        return {(key, name, digest) for key in ("code", "data") for name, digest in config.get(key, {}).items()}

    if not content(what):
        return None
    earlier = []
    for other in folder.parent.glob("[!.]*"):
        with suppress(Untrusted):
            summary = read_summary(other)
            if summary and content(summary["config"]) != content(what):
                if {**summary["config"], "code": None, "data": None} == {**what, "code": None, "data": None}:
                    earlier.append((summary["finished"], other, content(summary["config"])))
    if not earlier:
        return None
    _, other, before = max(earlier, key=lambda run: run[:2])
    changes = sorted({(key, name) for key, name, _ in before ^ content(what)})
    files = {key: ", ".join(described(name, raw) for each, name in changes if each == key) for key, _ in changes}
    return f"note: {other} was made by {' and '.join(f'other {key} ({names})' for key, names in files.items())}; this is another run"


def described(name: str, raw: Mapping[str, Path]) -> str:
    """Return a file's name and its modification time, or a class's name and its correction date."""
    if name in CORRECTED:
        return f"{name.rpartition('.')[2]}, corrected on {CORRECTED[name]}"
    module, _, path_text = name.rpartition(":")
    path = next((file.parent / path_text for file in files_of(module)[:1]), None) if module else raw.get(name)
    try:
        return path_text + (f", changed {ago(time.time() - path.stat().st_mtime)}" if path else "")
    except OSError:
        return path_text


def ago(seconds: float) -> str:
    """Format an age as ``40 s ago``, ``12 min ago``, ``3 h ago`` or ``5 days ago``."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            return f"{max(seconds, 0) / size:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"
