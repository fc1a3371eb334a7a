"""The names that stored results know classes and keys by: what has moved, and what has come, since they were stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fgl_bench.utils.sources import targets

MODULES = {"algorithm": "algorithms", "model": "models", "dataset": "data.datasets", "split": "data.splits", "scenario": "scenarios"}
VARIANTS = {f"fedaas.{name}": f"{name.lower()}.{name}" for name in ("FedAAS1", "FedAAS2", "FedAll", "FedLocal")}  # modules once

BEFORE: dict[str, dict[str, Any]] = {
    "algorithm": {"first_hop": "full", "attention": "raw", "inference_activation": "none", "lsc": "paper", "encoder": "shared"},
    "model": {"default_homophily": 0.5, "per_feature": False, "filter_lr": None, "filter_weight_decay": None},
    "dataset": {"normalize_features": False},
    "optimizer": {"_target_": "fgl_bench.optimizers.adam.Adam", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},  # the whole group
    "scenario": {"fast_trips": "concurrent", "staleness_from": "base", "devices": [], "cycle_seconds": 1.0},
    "split": {
        "masks": "client", "stratify": True, "seeded": True, "deal": "openfgl", "seed": None, "parts_per_owner": 1,
        "score_trained": "final",
    },
}  # fmt: skip
"""Keys of a group that are younger than stored results, with the value that does what was done before they came.

A key with this value is no part of a run's identity, nor is a group of nothing else, so that results from before it stay results of the
same configuration.
"""

SERVED = {"score_trained": "never"}  # where a server holds the test nodes, stored results have no scores of trained models

CORRECTED = {"fgl_bench.algorithms.adafgl.AdaFGL": "2026-11-25"}
"""Classes whose runs have had other numbers since a correction, and its date.

The date is part of a run's identity, so that a run from before is not taken for one of today. Where a key brings the former numbers back,
add the key to :data:`BEFORE` instead.
"""


def canonical(target: str) -> str:
    """The name of a class that does not depend on the folder in which its group keeps the module; other names stay as they are.

    ``fgl_bench.algorithms.cross_client.fedaas.FedAAS`` is ``fgl_bench.algorithms.fedaas.FedAAS``.
    """
    for folder in MODULES.values():
        start = f"fgl_bench.{folder}."
        if target.startswith(start):
            name = ".".join(target.removeprefix(start).split(".")[-2:])
            return start + VARIANTS.get(name, name)
    return target


def canonical_names(value: Any) -> Any:
    """``value`` with every ``_target_`` in it by its :func:`canonical` name."""
    if isinstance(value, dict):
        plain = {key: canonical_names(inner) for key, inner in value.items()}
        return {**plain, "_target_": canonical(plain["_target_"])} if isinstance(plain.get("_target_"), str) else plain
    return [canonical_names(inner) for inner in value] if isinstance(value, list) else value


def corrections(config: Mapping[str, Any]) -> dict[str, str]:
    """``corrected on <date>`` by class, of those in ``config`` that are :data:`CORRECTED`; names are :func:`canonical`."""
    return {target: f"corrected on {CORRECTED[target]}" for target in sorted({*targets(config)} & CORRECTED.keys())}


def before(group: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """:data:`BEFORE` for the configuration ``value`` of ``group``."""
    served = group == "split" and value.get("test") == "server"
    return BEFORE.get(group, {}) | (SERVED if served else {})


def without_younger_keys(group: str, value: Any) -> Any:
    """The configuration of ``group`` without the keys that have their value of :data:`BEFORE`."""
    if not isinstance(value, dict):
        return value
    former = before(group, value)
    return {key: inner for key, inner in value.items() if key not in former or inner != former[key] or type(inner) is not type(former[key])}
