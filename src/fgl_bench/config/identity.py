"""The names that stored results know classes by, wherever their modules are, and the corrections since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fgl_bench.utils.sources import targets

MODULES = {"algorithm": "algorithms", "model": "models", "dataset": "data.datasets", "split": "data.splits", "scenario": "scenarios"}

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
}
"""Datasets whose class stood in a module of its own: module and class now, and as stored runs have them."""

CORRECTED = {"fgl_bench.algorithms.adafgl.AdaFGL": "2026-11-25"}
"""Classes whose runs have had other numbers since a correction, and its date.

The date is part of a run's identity, so that a run from before is not taken for one of today.
"""


def canonical(target: str) -> str:
    """The name of a class that does not depend on the folder in which its group keeps the module; other names stay as they are.

    ``fgl_bench.algorithms.cross_client.fedaas.FedAAS`` is ``fgl_bench.algorithms.fedaas.FedAAS``.
    """
    for folder in MODULES.values():
        start = f"fgl_bench.{folder}."
        if target.startswith(start):
            name = ".".join(target.removeprefix(start).split(".")[-2:])
            return start + (RENAMED.get(name, name) if folder == "data.datasets" else name)
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
