"""Run directories: named by what was configured, written last and atomically."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from omegaconf import DictConfig, OmegaConf

from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import History

SCHEMA_VERSION = 1
# What says where and how, not what: two runs that differ in these only are the same run.
PRESENTATION = (
    "device", "threads", "memory_budget_gb", "seeds_per_chunk", "data_dir", "results_dir", "cache_dir", "overwrite", "progress", "tracker",
)  # fmt: skip
PACKAGES = ("fgl-bench", "torch", "torch_geometric", "numpy", "scipy", "pymetis", "python-louvain", "hydra-core", "omegaconf")


def identity(cfg: DictConfig, rounds: int, trips: int) -> dict:
    """The configuration that decides the numbers: resolved, without presentation keys, with the budget worked out."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    return {**{key: value for key, value in plain.items() if key not in PRESENTATION}, "rounds": rounds, "trips": trips}


def config_hash(what: dict) -> str:
    """Twelve hex digits of the canonical form of :func:`identity`."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


def run_folder(results: Path, dataset: str, split: str, clients: int, scenario: str, algorithm: str, digest: str) -> Path:
    """``<results>/<dataset>/<split>-<clients>/<scenario>/<algorithm>/<hash>``."""
    return results / dataset / f"{split}-{clients}" / scenario / algorithm / digest


def is_complete(folder: Path) -> bool:
    """Whether the run in ``folder`` was finished: its summary is written last and in one piece."""
    try:
        return json.loads((folder / "summary.json").read_text(encoding="utf-8"))["schema_version"] == SCHEMA_VERSION
    except (OSError, ValueError, KeyError, TypeError):
        return False


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
        asked = {"cwd": root, "capture_output": True, "text": True, "check": True, "timeout": 20}
        commit = subprocess.run([*git, "rev-parse", "HEAD"], **asked).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "--", "src", "conf", "pyproject.toml"], **asked).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changed.strip())}


def history_rows(histories: Sequence[History], weights: Sequence[np.ndarray] | None = None) -> list[dict]:
    """One row per seed and evaluation point."""
    rows = []
    for number, h in enumerate(histories):
        pooled = {model: h.pooled(model, None if weights is None else weights[number]) for model in h.scores}
        for t in range(len(h.trips)):
            row = {"seed": h.seed, "trip": int(h.trips[t]), "round": int(h.version[t]), "time": round(float(h.time[t]), 6)}
            for model, score in pooled.items():
                row |= {f"val_{model}": round(float(score[t, 0]), 6), f"test_{model}": round(float(score[t, 1]), 6)}
            row |= {"upload_bytes": int(h.upload[t]), "download_bytes": int(h.download[t])}
            if h.busiest is not None:
                row["busiest_bytes"] = int(h.busiest[t])
            for name, value in zip(("staleness_mean", "staleness_max"), h.staleness[t], strict=True):
                row[name] = None if np.isnan(value) else round(float(value), 4)
            rows.append(row)
    return rows


def write_run(folder: Path, config: str, summary: dict, rows: list[dict], arrays: dict[str, np.ndarray]) -> None:
    """Write a complete run directory, or none: everything goes to a temporary sibling that is then renamed.

    Raises:
        UserError: the results directory cannot be written.
    """
    import pandas as pd

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"results_dir: cannot write {folder.parent} ({error.strerror}); choose a folder that can be written") from error
    try:
        (scratch / "config.yaml").write_text(config, encoding="utf-8")
        pd.DataFrame(rows).to_csv(scratch / "history.csv", index=False)
        if arrays:
            np.savez_compressed(scratch / "mixing.npz", **arrays)
        (scratch / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        scratch.chmod(0o777 & ~_umask())
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
