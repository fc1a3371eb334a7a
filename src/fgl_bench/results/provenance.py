"""What made a run: versions of packages, and the state of the checkout."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
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


def on_cpu(run: Mapping) -> bool:
    """Whether a CPU made the run that this summary or stored cell is of; one that does not say came from a CPU."""
    return str(run.get("device", "CPU")).startswith("CPU")


def marked(title: str, run: Mapping) -> str:
    """``title`` of something that is measured in seconds, with the device where it was no CPU."""
    return title if on_cpu(run) else f"{title} (GPU)"
