"""Stable names of classes in stored results, and dates of corrections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fgl_bench.utils.sources import targets

MODULES = {"algorithm": "algorithms", "model": "models", "dataset": "data.datasets", "split": "data.splits", "scenario": "scenarios"}

BEFORE: dict[str, Any] = {
    "task": {"_target_": "fgl_bench.tasks.node.NodeClassification"},
    "lr_schedule": {"_target_": "fgl_bench.engine.schedules.Constant"},
    "clip_gradient": None,
    "patience": None,
    "virtual_time": None,
    "unseen_clients": 0.0,
    "finetune_epochs": 5,
    "scenario.noise": {"_target_": "fgl_bench.data.noise.NoNoise"},
    "scenario.attack": {"_target_": "fgl_bench.engine.attacks.NoAttack"},
    "aggregator": {"_target_": "fgl_bench.engine.aggregators.Mean"},
    "privacy": {"_target_": "fgl_bench.engine.privacy.NoPrivacy"},
}
"""Keys added later, with the value that stands for the behavior before; a key with this value is not part of a run's identity."""


def without_later(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return ``config`` without the keys whose value is that of :data:`BEFORE`."""
    left = {key: value for key, value in config.items() if f"{prefix}{key}" not in BEFORE or value != BEFORE[f"{prefix}{key}"]}
    inner = {key.partition(".")[0] for key in BEFORE if "." in key} if not prefix else set()
    return left | {key: without_later(left[key], f"{key}.") for key in inner & left.keys()}


RENAMED = {
    "npz.Amazon": "amazon.Amazon",
    "npz.Coauthor": "coauthor.Coauthor",
    "npz.CitationFull": "citation_full.CitationFull",
    "npz.Musae": "musae.Musae",
    "npz.CitationDomains": "citation_domains.CitationDomains",
    "npz.Twitch": "twitch.Twitch",
    "npz.Heterophilous": "heterophilous.Heterophilous",
    "npz.WebKB": "webkb.WebKB",
    "facebook100.LINKX": "linkx.LINKX",
    "graphsaint.Flickr": "flickr.Flickr",
    "graphsaint.Yelp": "yelp.Yelp",
    "graphsaint.Reddit": "reddit.Reddit",
    "csbm.CSBMMultiLabel": "csbm_multilabel.CSBMMultiLabel",
    "metis.MetisOverlap": "metis_overlap.MetisOverlap",
    "fed_pub.FedPubOverlap": "fed_pub_overlap.FedPubOverlap",
}
"""Datasets and splits whose class stood in a module of its own: module and class now, and as stored runs have them."""

CORRECTED = {"fgl_bench.algorithms.adafgl.AdaFGL": "2026-11-25"}
"""Classes whose results changed by a correction, with its date.

The date is part of a run's identity, so that earlier runs are not reused.
"""


def canonical(target: str) -> str:
    """Return the name of a class without the subfolder of its module; other names are unchanged.

    ``fgl_bench.algorithms.cross_client.fedaas.FedAAS`` is ``fgl_bench.algorithms.fedaas.FedAAS``.
    """
    for folder in MODULES.values():
        start = f"fgl_bench.{folder}."
        if target.startswith(start):
            name = ".".join(target.removeprefix(start).split(".")[-2:])
            return start + RENAMED.get(name, name)
    return target


def canonical_names(value: Any) -> Any:
    """Return ``value`` with the :func:`canonical` name of every ``_target_``."""
    if isinstance(value, dict):
        plain = {key: canonical_names(inner) for key, inner in value.items()}
        return {**plain, "_target_": canonical(plain["_target_"])} if isinstance(plain.get("_target_"), str) else plain
    return [canonical_names(inner) for inner in value] if isinstance(value, list) else value


def corrections(config: Mapping[str, Any]) -> dict[str, str]:
    """Return ``corrected on <date>`` by :func:`canonical` name of the :data:`CORRECTED` classes in ``config``."""
    return {target: f"corrected on {CORRECTED[target]}" for target in sorted({*targets(config)} & CORRECTED.keys())}
