"""What a stored summary must look like, checked once so that whatever reads one can rely on it."""

from __future__ import annotations

import base64
import csv
import math
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kind:
    """What a single value may be."""

    name: str
    holds: Callable[[object], bool]


@dataclass(frozen=True)
class Each:
    """A mapping from any names to values of one shape."""

    shape: object


@dataclass(frozen=True)
class Maybe:
    """None, or of a shape."""

    shape: object


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


NUMBER = Kind("a finite number", _is_number)
COUNT = Kind("a whole number from 0", lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0)
INTEGER = Kind("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool))
TEXT = Kind("a text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
MAPPING = Kind("a mapping", lambda value: isinstance(value, Mapping))
SCORE = Maybe(NUMBER)

# A key that ends with ? may be absent: results outlive the version that added it.
SPREAD = {"mean": SCORE, "ci95": SCORE, "std?": SCORE}
SELECTED = Each(Each({**SPREAD, "per_seed": [SCORE]}))
SCORES = {
    **SPREAD,
    "per_seed": [SCORE],
    "selected_trips?": [SCORE],
    "val?": SPREAD,
    "last?": SPREAD,
    "macro?": SPREAD,
    "selected?": SELECTED,
    "worst_client?": SPREAD,
    "per_client?": [[SCORE]],
    "fairness?": {name: SCORE for name in ("worst", "tenth", "median", "best", "std")},
}
OTHER = {**SPREAD, "per_seed": [SCORE], "last?": SPREAD, "selected?": SELECTED}
REACHED = {**SPREAD, "reached": COUNT, "censored_mean": NUMBER, "per_seed": [SCORE]}


def _both(scores: object) -> dict:
    return {"received": scores, "trained": scores}


SUMMARY = {
    "config_hash": TEXT,
    "config?": MAPPING,
    "seeds": [INTEGER],
    "test": _both(SCORES),
    "metrics?": Each(_both(OTHER)),
    "client_trips": {"total": NUMBER, "to_target": Each(_both(REACHED))},
    "bytes": {"upload": NUMBER, "download": NUMBER, "busiest?": NUMBER},
    "costs?": Each({"mean": SCORE}),
    "virtual_time": NUMBER,
    "seconds": {"total": NUMBER, "train?": NUMBER, "prepare?": NUMBER},
    "device": TEXT,
    "versions": Each(TEXT),
    "code?": Maybe({"commit": TEXT, "dirty?": FLAG}),
    "world_size?": COUNT,
    "worker_bytes?": COUNT,
    "finished": TEXT,
    "unscored_clients?": Each([COUNT]),
    "untrained_clients?": [COUNT],
    "diverged?": Maybe(Each(Each({"clients": COUNT, "round": COUNT, "trip": COUNT, "per_client?": [COUNT]}))),
}
# What the table at the end of a run shows besides.
RUN = {
    "test": _both({"last": SPREAD, "worst_client": SPREAD}),
    "seconds": {"prepare": NUMBER, "train": NUMBER},
    "num_clients": COUNT,
    **dict.fromkeys(("algorithm", "dataset", "split", "model", "scenario", "metric"), TEXT),
}
CURVE = {"trips": [NUMBER], "received": [NUMBER], "trained": [NUMBER]}
MATRICES = Each(Each({"clients": COUNT, "max": NUMBER, "data": TEXT}))


def flaw(value: object, shape: Any, place: str = "") -> str | None:
    """What is wrong with ``value``, in words; None where it has the shape: a dictionary of shapes, a list of one, or one of the above."""
    at = place or "it"
    if isinstance(shape, Maybe):
        return None if value is None else flaw(value, shape.shape, place)
    if isinstance(shape, Kind):
        return None if shape.holds(value) else f"{at} is {_shown(value)}, not {shape.name}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{at} is {_shown(value)}, not a list"
        if _alike(value, shape[0]):
            return None
        return _first(flaw(item, shape[0], f"{place}[{number}]") for number, item in enumerate(value))
    if not isinstance(value, dict | Mapping):
        return f"{at} is {_shown(value)}, not a mapping"
    if isinstance(shape, Each):
        return _first(flaw(item, shape.shape, _below(place, name)) for name, item in value.items())
    absent = [_below(place, name) for name in shape if not name.endswith("?") and name not in value]
    if absent:
        return f"{absent[0]} is missing"
    names = {name: name.removesuffix("?") for name in shape}
    return _first(flaw(value[name], shape[key], _below(place, name)) for key, name in names.items() if name in value)


def _alike(values: list, shape: Any) -> bool:
    """Whether all of a list are single values of the kind that ``shape`` names, most values of a summary being in such lists."""
    if isinstance(shape, Maybe):
        values, shape = [value for value in values if value is not None], shape.shape
    return isinstance(shape, Kind) and all(map(shape.holds, values))


def _first(flaws: Iterable[str | None]) -> str | None:
    return next((text for text in flaws if text is not None), None)


def _below(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def curve_flaw(curve: Any) -> str | None:
    """What is wrong with what ``pictures.curve`` made: lists of one length, which is not 0."""
    wrong = flaw(curve, CURVE, "curve") or flaw(curve, Each([NUMBER]), "curve")
    if wrong is None and len({len(values) for values in curve.values()}) != 1:
        return "curve has lists of several lengths"
    return "curve is empty" if wrong is None and not curve["trips"] else wrong


def matrices_flaw(kinds: Any) -> str | None:
    """What is wrong with what ``pictures.matrices`` made."""
    wrong = flaw(kinds, MATRICES, "matrices")
    if wrong is not None:
        return wrong
    for kind, by_trips in kinds.items():
        for trips, matrix in by_trips.items():
            try:
                entries = len(base64.b64decode(matrix["data"], validate=True))
            except ValueError:
                entries = -1
            if entries != matrix["clients"] ** 2 or not trips.isdecimal():
                return f"matrices.{kind}.{trips} is no matrix of {matrix['clients']} clients"
    return None


# What a cell keeps for pages and figures, and what is wrong with it.
PICTURES: dict[str, Callable[[object], str | None]] = {
    "curve": curve_flaw,
    "records": lambda records: flaw(records, [Each([NUMBER])], "records"),
    "matrices": matrices_flaw,
    "label_counts": lambda counts: flaw(counts, [[COUNT]], "label_counts"),
}


def summary_flaw(summary: Mapping) -> str | None:
    """What is wrong with a summary or a cell; None where nothing is."""
    wrong = flaw(summary, SUMMARY)
    if wrong is not None:
        return wrong
    seeds = len(summary["seeds"])
    if not seeds:
        return "seeds is empty"
    parts = {"test": summary["test"], **{f"metrics.{name}": scores for name, scores in summary.get("metrics", {}).items()}}
    for name, of_trips in summary["client_trips"]["to_target"].items():
        parts[f"client_trips.to_target.{name}"] = of_trips
    for place, by_model in parts.items():
        for model, scores in by_model.items():
            if "per_seed" in scores and len(scores["per_seed"]) != seeds:
                return f"{place}.{model}.per_seed has {len(scores['per_seed'])} values for {seeds} seed(s)"
    return None


def history_flaw(path: Path, seeds: Sequence[int]) -> str | None:
    """What is wrong with a ``history.csv``: every seed has rows, as long as the header, that number their trips."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return f"{path.name} cannot be read ({error})"
    if not {"seed", "trip"} <= set(header):
        return f"{path.name} has no column {'trip' if 'seed' in header else 'seed'}"
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            return f"line {number} of {path.name} has {len(row)} values for {len(header)} columns"
    absent = {str(seed) for seed in seeds} - {row[header.index("seed")] for row in rows}
    return f"{path.name} has no row of seed {min(absent)}" if absent else None


def archive_flaw(path: Path) -> str | None:
    """What is wrong with an archive of arrays that may be absent."""
    return f"{path.name} is no archive of arrays" if path.exists() and not zipfile.is_zipfile(path) else None
