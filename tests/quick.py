"""Whole configurations on generated graphs small enough for a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fgl_bench.config.compose import Composer
from fgl_bench.data.graph import Federation
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import RunSpec, resolve

SMALL = {
    "dataset.num_nodes": 240, "dataset.num_edges": 600, "dataset.num_features": 50, "dataset.words_per_node": 6.0,
    "dataset.communities_per_class": 2,
}  # fmt: skip


def prepared(
    algorithm: str, folder: Path, changes: Mapping[str, Any], *, clients: int = 6, seeds: list[int], rounds: int
) -> tuple[RunSpec, list[Federation]]:
    """A run on a small graph, and its federations; caches go to ``folder``."""
    settings = {
        "split": "metis", "model": "gcn", "dataset": "csbm_cora", "num_clients": clients, "seeds": seeds, "trips": rounds * clients,
        "device": "cpu", "progress": "false", "cache_dir": folder, **SMALL, **changes,
    }  # fmt: skip
    compose = Composer()
    cfg = compose([f"algorithm={algorithm}", *(f"{key}={value}" for key, value in settings.items())])
    spec = resolve(cfg)
    return spec, prepare(spec)
