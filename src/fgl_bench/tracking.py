"""Sending a finished run to an experiment tracker. A tracker that fails costs a warning, never a run.

Trackers read the run directory, so that what they show is what the files say: one tracker run per seed (a mean over
seeds hides them), grouped by the hash of the configuration.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

MARKER = ".tracked"


@dataclass(frozen=True)
class NoTracker:
    """Keep the results in the run directory only."""

    def log(self, run_dir: Path) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Wandb:
    """Weights & Biases (the ``wandb`` extra)."""

    project: str
    entity: str | None
    mode: Literal["online", "offline"]

    def log(self, run_dir: Path) -> None:
        """Log every seed of the finished run in ``run_dir`` as a run of its own; a run already logged is left alone.

        Raises:
            ImportError: wandb is not installed.
            Exception: whatever wandb raises.
        """
        if (run_dir / MARKER).exists():
            return
        import wandb

        summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
        config = OmegaConf.to_container(OmegaConf.load(run_dir / "config.yaml"))
        for seed, rows in sorted(rows_by_seed(run_dir / "history.csv").items()):
            group = str(summary["config_hash"])
            run = wandb.init(
                project=self.project,
                entity=self.entity,
                mode=self.mode,
                group=group,
                id=f"{group}-{seed}",
                name=f"{summary['algorithm']}-{summary['dataset']}-seed{seed}",
                config={**config, "seed": seed},
                dir=str(run_dir),
                reinit=True,
            )
            for row in rows:
                run.log(row)
            run.summary.update(seed_results(summary, seed))
            run.finish()
        (run_dir / MARKER).touch()


def rows_by_seed(path: Path) -> dict[int, list[dict[str, float]]]:
    """The rows of ``history.csv`` of each seed, in order, numbers only (an empty cell is left out)."""
    found: dict[int, list[dict[str, float]]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[int(row.pop("seed"))].append({key: number for key, text in row.items() if (number := to_number(text)) is not None})
    return dict(found)


def to_number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def seed_results(summary: dict[str, Any], seed: int) -> dict[str, float]:
    """The test scores of one seed, ``{"test/received": ..., "test/trained": ...}``."""
    position = summary["seeds"].index(seed)
    return {f"test/{model}": stats["per_seed"][position] for model, stats in summary["test"].items()}


def publish(tracker: Any, run_dir: Path) -> None:
    """Let ``tracker`` log the finished run; on any failure warn on stderr and go on."""
    try:
        tracker.log(run_dir)
    except ImportError as error:
        warn(f"{error}; pip install 'fgl-bench[wandb]'", run_dir)
    except Exception as error:  # a tracker's trouble (network, quota, credentials) is not the run's
        warn(f"{type(error).__name__}: {error}", run_dir)


def warn(problem: str, run_dir: Path) -> None:
    line = " ".join(problem.split())[:300]
    print(f"warning: the tracker failed ({line}); the run is complete in {run_dir}", file=sys.stderr)
