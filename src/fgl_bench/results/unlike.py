"""In what else runs differ that are meant to be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fgl_bench.results.hardware import on_cpu

GROUPS = {
    "algorithm": "algorithm",
    "dataset": "dataset",
    "split": "split",
    "model": "model",
    "optimizer": "optimizer",
    "scenario.sparsity": "sparsity",
    "scenario": "scenario",
}
"""Groups of the configuration and the keys of ``summary.json`` that name their choices, the inner group first."""
BEFORE = {"optimizer": "adam"}
"""What the choice of a group was before summaries named it."""
BUDGET = ("rounds", "trips", "num_clients", "participation")
"""Keys that follow from each other."""


def differences(summaries: Sequence[Mapping[str, Any]], swept: set[str]) -> list[str]:
    """What tells the runs apart besides the swept keys, such as ``scenario=sync (fedavg), semi_async (fedsa_gcl)``.

    A swept group explains all of its keys and the source of its classes, and a swept dataset the content of its files. Groups are named
    by their choices, where these differ; then CPUs from GPUs, versions of packages and the commit, since a run of before may be among them.

    Args:
        summaries: of complete runs.
        swept: keys that the user gave several values, with dots for slashes (``algorithm``, ``scenario.sparsity``, ``model.hidden``).
    """
    if "experiment" in swept:
        return []
    explained = swept | ({*BUDGET} if swept & {*BUDGET} else set())
    flat = [dict(leaves(summary["config"])) for summary in summaries]
    names = [summary["algorithm"] for summary in summaries]
    differing: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for config in flat for key in config):
        group = next((group for group in GROUPS if key.startswith(f"{group}.")), None)
        if key in explained or group in explained or (group == "scenario.sparsity" and "scenario" in explained):
            continue
        if key.startswith("code.") and explained & {*GROUPS}:
            continue
        if key.startswith("data.") and any(name == "dataset" or name.startswith("dataset.") for name in explained):
            continue
        values = [config.get(key) for config in flat]
        if any(value != values[0] for value in values):
            choices = [summary.get(GROUPS[group], BEFORE.get(group)) for summary in summaries] if group else []
            named = group if group and len(set(choices)) > 1 else None
            differing.setdefault(named or key, choices if named else values)
    differing["device"] = ["CPU" if on_cpu(summary) else summary["device"] for summary in summaries]
    for package in dict.fromkeys(name for summary in summaries for name in summary.get("versions", {})):
        differing[f"version of {package}"] = [summary.get("versions", {}).get(package) for summary in summaries]
    differing["commit"] = [str((summary.get("code") or {}).get("commit"))[:12] for summary in summaries]
    return [said(key, values, names) for key, values in differing.items() if any(value != values[0] for value in values)]


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``(key, value)`` of every leaf, keys joined by dots."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def said(key: str, values: Sequence[Any], names: Sequence[str]) -> str:
    """``key=value (algorithms), value (algorithms)``."""
    owners: dict[str, list[str]] = {}
    for value, name in zip(values, names, strict=True):
        text = "null" if value is None else str(value)
        owners.setdefault(text[:12] if key.startswith(("code.", "data.")) else text, []).append(name)  # of a sum, the first digits
    return f"{key}=" + ", ".join(f"{value} ({', '.join(dict.fromkeys(runs))})" for value, runs in owners.items())
