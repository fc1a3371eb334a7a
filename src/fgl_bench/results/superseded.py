"""Runs of the same configuration that other code or other data have made."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fgl_bench.config.identity import CORRECTED
from fgl_bench.results.store import Untrusted, read_summary
from fgl_bench.utils.sources import files_of

CONTENT = ("code", "data")


def superseded(folder: Path, what: Mapping[str, Any], raw: Mapping[str, Path]) -> str | None:
    """One line on the latest run beside ``folder`` that differs in the content of files or in corrections alone: which, and when.

    Args:
        folder: the directory of the run that is to be made.
        what: its identity, see :func:`fgl_bench.results.store.identity`.
        raw: the dataset's raw files by name.
    """
    if not any(what.get(key) for key in CONTENT):
        return None
    earlier = []
    for other in folder.parent.glob("[!.]*"):
        try:
            summary = read_summary(other)
        except Untrusted:
            continue
        if summary and without_content(summary["config"]) == without_content(what) and summary["config"] != what:
            earlier.append((summary["finished"], other, summary["config"]))
    if not earlier:
        return None
    _, other, config = max(earlier, key=lambda run: run[:2])
    changes = {key: differing(config, what, key) for key in CONTENT if config.get(key) != what.get(key)}
    made = []
    for key, names in changes.items():
        made.append(f"other {key} ({', '.join(described(key, name, raw) for name in names)})")
    return f"note: {other} was made by {' and '.join(made)}; this is another run"


def without_content(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in CONTENT}


def differing(config: Mapping[str, Any], what: Mapping[str, Any], key: str) -> list[str]:
    """Names of the files that are not the same in both."""
    old, new = config.get(key) or {}, what.get(key) or {}
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def described(key: str, name: str, raw: Mapping[str, Path]) -> str:
    """The file's name and when it changed, or the package's class and when it was corrected."""
    if name in CORRECTED:
        return f"{name.rpartition('.')[2]}, corrected on {CORRECTED[name]}"
    return name.rpartition(":")[2] + changed(key, name, raw)


def changed(key: str, name: str, raw: Mapping[str, Path]) -> str:
    """``, changed 12 min ago``, as far as the file is there."""
    module, _, place = name.partition(":")
    path = next((file.parent / place for file in files_of(module)[:1]), None) if key == "code" else raw.get(name)
    try:
        return f", changed {ago(time.time() - path.stat().st_mtime)}" if path else ""
    except OSError:
        return ""


def ago(seconds: float) -> str:
    """``40 s ago``, ``12 min ago``, ``3 h ago``, ``5 days ago``."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            return f"{max(seconds, 0) / size:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"
