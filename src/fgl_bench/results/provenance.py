"""What made a run: versions of packages, and the state of the checkout."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("fgl-bench", "torch", "torch_geometric", "numpy", "scipy", "numba", "pymetis", "python-louvain", "hydra-core", "omegaconf")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def code_state() -> dict[str, str | bool] | None:
    """The commit of the checkout that runs, and whether the code or the configuration differ from it; None outside of one."""
    root, git = Path(__file__).parents[3], ("git", "--no-optional-locks")
    if not (root / ".git").exists():
        return None
    try:
        asked: dict[str, Any] = {"cwd": root, "capture_output": True, "text": True, "check": True, "timeout": 20}
        commit = subprocess.run([*git, "rev-parse", "HEAD"], **asked).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "--", "src", "conf", "pyproject.toml"], **asked).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changed.strip())}
