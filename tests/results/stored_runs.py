"""Complete runs on disk that nobody trained, for what reads runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fgl_bench.results.store import config_hash, run_folder, write_run
from tests.results.summaries import scores, summary

SCENARIOS = {"fedsa_gcl": "semi_async"}


def store(
    root: Path,
    algorithm: str,
    dataset: str = "cora",
    split: str = "metis",
    per_seed: Sequence[float | None] = (0.5, 0.6),
    clients: int = 2,
    config: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Write a run below ``root``; ``config`` are keys of its configuration besides the usual ones, groups as dictionaries."""
    scenario = SCENARIOS.get(algorithm, "sync")
    what: dict[str, Any] = {
        "algorithm": {"_target_": algorithm}, "dataset": {"_target_": dataset}, "split": {"_target_": split}, "model": {"_target_": "gcn"},
        "scenario": {"_target_": scenario, "sparsity": {"_target_": "none"}}, "lr": 0.01, "num_clients": clients, "rounds": 10,
        "trips": 10 * clients, "participation": 1.0, "seeds": list(range(len(per_seed))),
    }  # fmt: skip
    for key, value in (config or {}).items():
        what[key] = {**what[key], **value} if isinstance(value, dict) and key in what else value
    names = {"algorithm": algorithm, "dataset": dataset, "split": split, "scenario": scenario, "model": "gcn", "sparsity": "none"}
    made = summary(what, per_seed, **{"metric": "accuracy", "num_clients": clients, **names, **changes})
    if "test" not in changes:
        half = [None if value is None else value / 2 for value in per_seed]
        made["test"] = {
            "received": {**scores(per_seed), "last": {**scores(per_seed)}, "per_client": [[value, value] for value in per_seed]},
            "trained": {**scores(half), "last": {**scores(half)}, "per_client": [[value, None] for value in half]},
        }
    rows = [
        {"seed": seed, "trip": trip, "round": trip // clients, "val_received": (value or 0.1) * trip / 20,
         "val_trained": (value or 0.1) * trip / 40, "test_received": (value or 0.1) * trip / 20,
         "test_trained": (value or 0.1) * trip / 40, "upload_bytes": 10 * trip, "download_bytes": 10 * trip}
        for seed, value in enumerate(per_seed) for trip in (0, 10, 20)
    ]  # fmt: skip
    folder = run_folder(root, dataset, split, clients, scenario, algorithm, config_hash(what))
    write_run(folder, "# none\n", made, rows, {})
    return folder
