"""Provenance of a run: package versions and the state of the checkout."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("fgl-bench", "torch", "torch_geometric", "numpy", "scipy", "numba", "pymetis", "python-louvain", "hydra-core", "omegaconf")


def versions() -> dict[str, str]:
    """Return the versions of Python and of packages that affect results."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def code_state() -> dict[str, str | bool] | None:
    """Return the checkout's commit and whether code or configuration differ from it; None outside a checkout."""
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
    """Return True if a summary or stored cell comes from a CPU run, the default for cells without a device."""
    return str(run.get("device", "CPU")).startswith("CPU")


def marked(title: str, run: Mapping) -> str:
    """Return ``title``, with the device appended if the seconds were not measured on a CPU."""
    return title if on_cpu(run) else f"{title} (GPU)"
