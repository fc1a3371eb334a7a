"""A summary with everything that readers rely on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fgl_bench.evaluation.summary import spread
from fgl_bench.results.store import SCHEMA_VERSION, config_hash


def scores(per_seed: Sequence[float | None]) -> dict[str, Any]:
    stats = spread([float("nan") if value is None else value for value in per_seed])
    return {**stats, "per_seed": list(per_seed), "last": stats, "worst_client": stats, "val": stats}


def summary(config: Mapping, per_seed: Sequence[float | None] = (0.5,), **changes: Any) -> dict[str, Any]:
    """Of a run of ``len(per_seed)`` seeds that has no target."""
    return {
        "schema_version": SCHEMA_VERSION,
        **{name: name for name in ("algorithm", "dataset", "split", "sparsity", "model", "scenario", "metric")},
        "num_clients": 2,
        "seeds": list(range(len(per_seed))),
        "test": {model: scores(per_seed) for model in ("received", "trained")},
        "client_trips": {"total": 20, "to_target": {}},
        "bytes": {"upload": 8, "download": 8},
        "virtual_time": 10.0,
        "seconds": {"prepare": 0.1, "train": 1.0, "total": 1.1},
        "device": "CPU",
        "versions": {"torch": "2.0"},
        "finished": "2026-01-02T03:04:05+00:00",
        "config": dict(config),
        "config_hash": config_hash(dict(config)),
        **changes,
    }


def write_run_by_hand(folder: Path, about: dict[str, Any], history: str = "seed,trip\n0,0\n") -> Path:
    """A complete run directory below ``folder``."""
    place = folder / about["config_hash"]
    place.mkdir(parents=True)
    (place / "summary.json").write_text(json.dumps(about), encoding="utf-8")
    (place / "config.yaml").write_text("", encoding="utf-8")
    (place / "history.csv").write_text(history, encoding="utf-8")
    return place
