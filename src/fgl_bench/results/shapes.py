"""What a stored summary must look like, checked once so that whatever reads one can rely on it."""

from __future__ import annotations

import base64
import csv
import re
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


MOST = 1e100  # sums, squares and powers of such numbers are still finite


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_plain(value: object) -> bool:
    """Return True if yaml can hold a value, and a file its texts."""
    if isinstance(value, Mapping):
        return all(TEXT.holds(key) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return value.isascii() or value.encode(errors="replace").decode() == value  # no lone surrogates
    return value is None or isinstance(value, bool) or _is_number(value)


NUMBER = Kind("a finite number", _is_number)
INTEGER = Kind("a whole number", _is_whole)
COUNT = Kind("a whole number from 0", lambda value: _is_whole(value) and value >= 0)  # type: ignore[operator]
TEXT = Kind("a text without control characters", lambda value: isinstance(value, str) and value.isprintable())
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
PLAIN = Kind("made of plain values", _is_plain)
SCORE = Maybe(Kind("a score from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1))  # type: ignore[operator]
VALUE = Maybe(NUMBER)

# A key that ends with ? may be absent: results outlive the version that added it.
WIDTH = {"ci95": VALUE, "std?": VALUE}
SPREAD = {"mean": VALUE, **WIDTH}
SHARE = {"mean": SCORE, **WIDTH}
SCORES = {
    **SHARE,
    "per_seed": [SCORE],
    "selected_trips?": [Maybe(COUNT)],
    "val?": SHARE,
    "last?": {**SHARE, "per_seed?": [SCORE]},
    "macro?": SHARE,
    "selected?": Each(Each({**SHARE, "per_seed": [SCORE]})),
    "worst_client?": SHARE,
    "per_client?": [[SCORE]],
    "fairness?": {name: SCORE for name in ("worst", "tenth", "median", "best", "std")},
}
OTHER = {**SPREAD, "per_seed": [VALUE], "last?": SPREAD, "selected?": Each(Each({**SPREAD, "per_seed": [VALUE]}))}
REACHED = {**SPREAD, "reached": COUNT, "censored_mean": NUMBER, "per_seed": [VALUE]}
GROUP = {"_target_?": TEXT}
CONFIG = {
    **dict.fromkeys(("dataset?", "split?", "model?", "algorithm?", "scenario?", "optimizer?"), GROUP),
    **dict.fromkeys(("code?", "data?"), Each(TEXT)),
    **dict.fromkeys(("rounds?", "trips?", "num_clients?"), Maybe(COUNT)),
    "participation?": Maybe(NUMBER),
}


def _both(scores: object) -> dict:
    return {"received": scores, "trained": scores}


SUMMARY = {
    "config_hash": TEXT,
    "config?": CONFIG,
    **dict.fromkeys(("algorithm?", "dataset?", "split?", "model?", "optimizer?", "scenario?", "sparsity?", "metric?"), TEXT),
    "num_clients?": COUNT,
    "seeds": [INTEGER],
    "test": _both(SCORES),
    "metrics?": Each(_both(OTHER)),
    "client_trips": {"total": NUMBER, "to_target": Each({"received": REACHED, "trained?": REACHED})},
    "bytes": {"upload": NUMBER, "download": NUMBER, "busiest?": NUMBER},
    "costs?": Each({"mean": VALUE}),
    "virtual_time": NUMBER,
    "seconds": {"total": NUMBER, "train?": NUMBER, "prepare?": NUMBER},
    "device": TEXT,
    "versions": Each(TEXT),
    "code?": Maybe({"commit": TEXT, "dirty?": FLAG}),
    "world_size?": COUNT,
    "worker_bytes?": COUNT,
    "finished": TEXT,
    "command?": TEXT,
    "selection?": TEXT,
    "staleness?": Maybe({"mean": NUMBER, "max": NUMBER}),
    "partition_hash?": [TEXT],
    "graph?": Each(COUNT),
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
    "label_counts?": Maybe([[COUNT]]),
}
CURVE = {"trips": [NUMBER], "received": [NUMBER], "trained?": [NUMBER]}
# Of history.csv; losses and other metrics of models that diverge may be infinite.
ROW = {
    **dict.fromkeys(("seed", "trip"), VALUE),
    **dict.fromkeys(("round?", "time?", "upload_bytes?", "download_bytes?", "busiest_bytes?"), VALUE),
    **dict.fromkeys(("val_received?", "test_received?", "val_trained?", "test_trained?"), SCORE),
}
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
        unsound = next((name for name in value if not TEXT.holds(name)), None)
        if unsound is not None:
            return f"{at} has the key {_shown(unsound)}, not {TEXT.name}"
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
    if len(set(summary["seeds"])) < seeds:
        return "seeds has a seed twice"
    wrong = flaw(summary.get("config", {}), Each(PLAIN), "config")
    wrong = wrong or _lengths(summary["test"], seeds, "test") or _lengths(summary.get("metrics", {}), seeds, "metrics")
    if wrong is not None:
        return wrong
    for target, by_model in summary["client_trips"]["to_target"].items():
        if not re.fullmatch(r"\d*\.?\d+(e-?\d{1,2})?", target):
            return f"client_trips.to_target.{target} is no target"
        wrong = _lengths(by_model, seeds, f"client_trips.to_target.{target}")
        if wrong is not None:
            return wrong
    return None


def _lengths(scores: Mapping, seeds: int, place: str) -> str | None:
    """Which list below ``scores`` has not a value for every seed."""
    for name, inner in scores.items():
        if isinstance(inner, Mapping):
            wrong = _lengths(inner, seeds, f"{place}.{name}")
            if wrong is not None:
                return wrong
        elif isinstance(inner, list) and len(inner) != seeds:
            return f"{place}.{name} has {len(inner)} values for {seeds} seed(s)"
    return None


def history_flaw(path: Path, seeds: Sequence[int]) -> str | None:
    """The first flaw of a ``history.csv``, or None: rows are numbers, as many as the header; every seed has rows with ascending trips."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return f"{path.name} cannot be read ({error})"
    if not {"seed", "trip"} <= set(header) or len(set(header)) < len(header):
        absent = next((name for name in ("seed", "trip") if name not in header), None)
        return f"{path.name} has a column twice" if absent is None else f"{path.name} has no column {absent}"
    last: dict[float, float] = {}
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            return f"line {number} of {path.name} has {len(row)} values for {len(header)} columns"
        try:
            values = dict(zip(header, (float(text) if text else None for text in row), strict=True))
        except ValueError as error:
            return f"line {number} of {path.name} has no number ({str(error)[:80]})"
        seed, trip = values["seed"], values["trip"]
        wrong = flaw(values, ROW)
        if wrong is not None or seed is None or trip is None:
            return f"line {number} of {path.name}: {wrong or 'seed or trip is missing'}"
        if trip <= last.get(seed, -1):
            return f"line {number} of {path.name} repeats trip {trip:g} of seed {seed:g}, or goes back"
        last[seed] = trip
    others = sorted(set(last) ^ set(map(float, seeds)))
    if others:
        return f"{path.name} has {'rows of another' if others[0] in last else 'no row of'} seed {others[0]:g}"
    return None


def archive_flaw(path: Path) -> str | None:
    """What is wrong with an archive of arrays that may be absent."""
    return f"{path.name} is no archive of arrays" if path.exists() and not zipfile.is_zipfile(path) else None
