"""UniFilter on every dataset as FedGSP's public code sets it, from ``conf/experiment/fedssa/_unifilter.yaml``."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from fgl_bench.config.choices import config_folder
from fgl_bench.papers.plan import Column

EVERYWHERE = ("model.per_feature=true", "model.basis=code", "model.default_homophily=0.75")
OF_THE_RUN = ("lr", "weight_decay", "rounds", "local_epochs")


@cache
def settings() -> dict[str, dict[str, dict[int, dict[str, Any]]]]:
    """By split, dataset and number of clients."""
    path = config_folder() / "experiment" / "fedssa" / "_unifilter.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def overrides(column: Column) -> tuple[str, ...]:
    """The keys of a column's run; ``column.where`` names split and number of clients."""
    chosen = settings()[column.where["split"]][column.dataset][int(column.where["num_clients"])]
    named = {(key if key in OF_THE_RUN else f"model.{key}"): value for key, value in chosen.items()}
    named["model.input_dropout"] = chosen["dropout"]
    return (*EVERYWHERE, *(f"{key}={value}" for key, value in named.items()))
